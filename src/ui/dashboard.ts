import { ASSETS, HASH } from "./assets.ts";

/** Options of {@linkcode dashboard}. */
export interface DashboardOptions {
  /** The name in the sidebar and in the title of the page, up to 60 characters. Default `Holdfast`. */
  title?: string;
  /**
   * The address of a run's trace, such as `https://traces.example.com/trace/{traceId}`: a link on the page of the run.
   * `{traceId}` becomes the id of the run without its dashes (the id of the trace with `otel({ trace: "run" })`), and
   * `{runId}` its id. Default: no link.
   */
  traceUrl?: string;
}

/** The files of the dashboard. `createHandler({ ui })` serves them under `ui/`. */
export interface Dashboard {
  /**
   * The response to a path after `ui`, such as `/` or `/-/<hash>/app.js`; `null`: there is no such file.
   * The page shows the version of the service, and whether it keeps log lines.
   */
  readonly respond: (path: string, service?: { version: string; keepsLogs: boolean }) => Response | null;
}

// No inline code, nothing of other origins, and no strings that become markup.
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

const HEADERS = {
  "content-security-policy": POLICY,
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};
const TYPES: Record<string, string> = {
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
};
const MAX_TITLE_LENGTH = 60;

/**
 * Creates the dashboard: pages that show runs, jobs, waits, schedules and workers, and act on them.
 *
 * @example
 * ```ts
 * import { createEngine, createHandler, MemoryStore } from "@holdfast/jobs";
 * import { dashboard } from "@holdfast/jobs/ui";
 *
 * await using engine = createEngine({ store: new MemoryStore(), jobs: {} });
 * const handler = createHandler(engine, { basePath: "/api/jobs", ui: dashboard({ title: "Imports" }) });
 *
 * // Deno.serve(handler.fetch), then open /api/jobs/ui
 * const response = await handler.fetch(new Request("http://localhost/api/jobs/ui/"));
 * console.log(response.status, response.headers.get("content-type"));
 * ```
 *
 * @throws {TypeError} An option is unknown, or not valid.
 */
export function dashboard(options: DashboardOptions = {}): Dashboard {
  const { title = "Holdfast", traceUrl = null, ...others } = options;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new TypeError(`dashboard() has no option "${unknown}"`);
  if (typeof title !== "string" || title.trim() === "" || title.length > MAX_TITLE_LENGTH) {
    throw new TypeError(`title must be a string of 1 to ${MAX_TITLE_LENGTH} characters`);
  }
  if (traceUrl !== null && !isWebAddress(traceUrl)) {
    throw new TypeError("traceUrl must be an address that begins with https:// or http://");
  }
  // Addresses are relative, so that they hold behind any prefix, and behind a proxy that strips one. The page is at `ui`
  // and at `ui/`: a redirect from one to the other never ends where a framework redirects the other way, as Next.js does.
  const folders = new Map([["", "ui/"], ["/", ""]]);
  return {
    respond: (path, service = { version: "", keepsLogs: false }) => {
      const folder = folders.get(path);
      if (folder !== undefined) {
        const page = toPage({ title, traceUrl, ...service }, folder);
        return toResponse(page, "text/html; charset=utf-8", "no-cache");
      }
      const asset = path.startsWith(`/-/${HASH}/`) ? path.slice(HASH.length + 4) : "";
      const type = TYPES[asset.slice(asset.lastIndexOf(".") + 1)];
      if (type === undefined || !Object.hasOwn(ASSETS, asset)) return null;
      return toResponse(ASSETS[asset]!, type, "private, max-age=31536000, immutable"); // it has it
    },
  };
}

/** The page, whose files are below `folder`, as seen from the address of the page. */
function toPage(options: { title: string } & Record<string, unknown>, folder: string): string {
  const parts: Record<string, string> = {
    files: `${folder}-/${HASH}`,
    title: escape(options.title),
    options: escape(JSON.stringify(options)),
  };
  return ASSETS["index.html"]!.replaceAll(/\{\{(\w+)\}\}/g, (_, name) => parts[name]!); // the page names only these
}

function toResponse(body: string, type: string, caching: string): Response {
  return new Response(body, { headers: { ...HEADERS, "content-type": type, "cache-control": caching } });
}

function isWebAddress(text: unknown): text is string {
  const url = typeof text === "string" ? URL.parse(text) : null;
  return url !== null && (url.protocol === "https:" || url.protocol === "http:");
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
