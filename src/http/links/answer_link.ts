import type { Engine } from "../../engine/engine.ts";
import { findLinkedWait } from "../../engine/runs/retried_waits.ts";
import { ConflictError, HoldfastError, NotFoundError, ValidationError, WaitExpiredError } from "../../model/error.ts";
import { actionsOf, type FlatField, flatFieldsOf, type FlatValue, type WaitAction } from "../../model/flat_form.ts";
import type { Host } from "../../model/host.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import type { Wait } from "../../model/wait.ts";
import type { Store } from "../../store/store.ts";
import { isInstance } from "../../values/unknown_values.ts";
import type { Json } from "../../values/json.ts";
import { callAuthHook, callHook, nothing } from "../access/caller.ts";
import { checkCrossSite } from "../access/request_origin.ts";
import { deepFreeze, toSeenRun } from "../access/seen_by_hooks.ts";
import type { HandlerLinks, Settings, SignedLink } from "../handler_options.ts";
import { decode, readBytes } from "../requests/read_json.ts";
import { MethodNotAllowedError, refuse } from "../response.ts";
import { askPage, controlOf, isNeeded, PAGE_HEADERS, sayPage, textOf } from "./link_page.ts";

/** What is needed to answer people with a link. */
interface LinkDeps {
  /** Reads the tokens. */
  links: HandlerLinks;
  /** Takes the answers. */
  engine: Engine;
  /** Where runs and waits are read. */
  store: Store;
  /** The jobs that ask: they may have renamed their waits. */
  jobs: JobCatalog;
  /** The handler's settings. */
  settings: Settings;
  /** Reports an error that a page hides. */
  report: (error: unknown, request: Request) => void;
}

const MAX_BODY_BYTES = 65_536;
const METHODS = ["GET", "HEAD", "POST"];
const RETRY_AFTER_SECONDS = "5";

/** What a person entered. */
interface Entered {
  /** The payload; `null`: something is wrong with what was entered. */
  payload: { value: Json } | null;
  values: ReadonlyMap<string, string>;
  issues: Map<string, string>;
}

const NOTHING: Pick<Entered, "values" | "issues"> = { values: new Map(), issues: new Map() };

/**
 * Answers the requests of people with a link: `GET` shows the question and changes nothing, since whatever scans mails
 * opens links, too; `POST` answers it. The token is the only right that is asked for, and `auth.onLink`.
 */
export async function answerLink(request: Request, url: URL, deps: LinkDeps): Promise<Response> {
  if (!METHODS.includes(request.method)) throw new MethodNotAllowedError(METHODS);
  try {
    return await answer(request, url, deps);
  } catch (thrown) {
    if (isInstance(thrown, Response)) return thrown;
    const { response, hidden } = refuse(thrown);
    if (hidden !== null) deps.report(hidden.error, request);
    const { status } = response;
    const retryAfter = response.headers.get("retry-after");
    await response.body?.cancel();
    const [title, text] = status >= 500
      ? ["This page is not available now", "Please try again in a minute."]
      : ["This answer was not accepted", "Please open the link again, and answer there."];
    return sayPage(status, title, text, retryAfter === null ? {} : { "retry-after": retryAfter });
  }
}

async function answer(request: Request, url: URL, deps: LinkDeps): Promise<Response> {
  const { links, settings: { host, trustedOrigins, onRequest } } = deps;
  const token = url.searchParams.getAll("t").length === 1 ? url.searchParams.get("t")! : "";
  const link = await links.read(token);
  if (link === null) {
    return sayPage(404, "This link is not valid", "It may have been cut. Please open the whole link.");
  }
  if (Date.parse(link.expiresAt) <= host.now()) return expired();
  checkCrossSite(request, url, trustedOrigins);
  if (onRequest !== null) await callHook("onRequest", onRequest, host);
  const { wait, mayCome } = await findLinkedWait(deps, link);
  if (wait === null && !mayCome) return closed();
  if (wait === null) {
    const headers = { "retry-after": RETRY_AFTER_SECONDS };
    return sayPage(503, "This question is not open now", "Please try again in a minute.", headers);
  }
  await check(deps, link, wait);
  if (wait.status !== "pending") return answered(link, wait);
  const actions = actionsOf(wait.metadata).filter(({ label }) => link.actions?.includes(label) ?? true);
  // A link with certain actions offers no other answer.
  const fields = actions.length > 0 || link.actions !== null ? null : flatFieldsOf(wait.payloadSchema);
  const question = { token, wait, actions, fields };
  if (request.method !== "POST") {
    return askPage({ ...question, entered: NOTHING.values, issues: NOTHING.issues });
  }
  const entered = await read(request, actions, fields, host);
  if (entered.payload !== null) {
    const response = await signal(deps, token, link, wait, entered);
    if (response !== null) return response;
  }
  return askPage({ ...question, entered: entered.values, issues: entered.issues });
}

/** Calls the hook: who may answer a question may have changed since the link was sent. */
async function check({ store, settings }: LinkDeps, link: SignedLink, wait: Wait): Promise<void> {
  const { auth, host } = settings;
  const hook = auth?.onLink;
  if (hook === undefined) return;
  const [whole = null] = await store.readRuns([wait.runId], Infinity);
  if (whole === null) throw new NotFoundError("There is no such run");
  const { for: named, actions, expiresAt } = link;
  const seen = deepFreeze({ for: named, actions, expiresAt });
  const frozen = deepFreeze(structuredClone(wait));
  await callAuthHook("onLink", () => hook(seen, toSeenRun(whole), frozen), nothing, host);
}

/** Sends the answer. `null`: it does not fit, and `entered` has the issues. */
async function signal(
  { engine }: LinkDeps,
  token: string,
  { signalId, for: by }: SignedLink,
  wait: Wait,
  entered: Entered,
): Promise<Response | null> {
  try {
    const payload = entered.payload!.value; // the caller has looked
    await engine.signal(wait.id, { signalId, payload }, by === null ? {} : { by });
  } catch (error) {
    if (error instanceof ValidationError && error.code === "invalid_input") {
      for (const { path: [name = ""], message } of error.issues) {
        const shown = [entered.issues.get(String(name)), message].filter(Boolean).join("; ");
        entered.issues.set(String(name), shown);
      }
      if (entered.issues.size === 0) entered.issues.set("", error.summary);
      return null;
    }
    if (error instanceof WaitExpiredError) return expired();
    // Somebody else was faster, or this form was sent twice: the page says which.
    if (!(error instanceof ConflictError) && !(error instanceof NotFoundError)) throw error;
  }
  // A reload then posts nothing. The address is relative: a proxy may have left out a prefix.
  return new Response(null, { status: 303, headers: { ...PAGE_HEADERS, location: `?t=${token}` } });
}

async function read(
  request: Request,
  actions: readonly WaitAction[],
  fields: readonly FlatField[] | null,
  host: Host,
): Promise<Entered> {
  const type = request.headers.get("content-type") ?? "";
  if (!/^application\/x-www-form-urlencoded\b/i.test(type)) {
    throw new HoldfastError("unsupported_encoding", "The body must be a form");
  }
  const values = new Map(
    new URLSearchParams(decode(await readBytes(request, MAX_BODY_BYTES, host))),
  );
  const issues = new Map<string, string>();
  if (fields === null) {
    const chosen = withLineFeeds(values.get("action") ?? "");
    const action = actions.find(({ label }) => withLineFeeds(label) === chosen);
    if (action === undefined) issues.set("", "Please choose one of the answers");
    return { payload: action === undefined ? null : { value: action.payload }, values, issues };
  }
  const members: [string, FlatValue][] = [];
  for (const [at, field] of fields.entries()) {
    const value = toValue(field, values.get(controlOf(at)) ?? "");
    if (value === undefined) {
      if (isNeeded(field)) {
        issues.set(
          field.name,
          field.choices !== null || field.type === "boolean" ? "Please choose" : "Please fill this in",
        );
      }
    } else if (typeof value === "object") issues.set(field.name, value.issue);
    else members.push([field.name, value]);
  }
  // fromEntries() makes own properties of all names, `__proto__` included.
  return { payload: issues.size > 0 ? null : { value: Object.fromEntries(members) }, values, issues };
}

function answered({ signalId }: SignedLink, wait: Wait): Response {
  if (wait.outcome === "timeout") return expired();
  if (wait.signalId !== signalId) return closed();
  return sayPage(200, "Thank you", "Your answer was received. You can close this page.");
}

function expired(): Response {
  return sayPage(410, "This link has expired", "The question can no longer be answered here.");
}

function closed(): Response {
  return sayPage(410, "This question is closed", "Somebody else has answered it, or it is not asked any more.");
}

/** What was entered in a field as its value; `undefined`: nothing. */
function toValue(field: FlatField, text: string): FlatValue | { issue: string } | undefined {
  if (text.trim() === "") return undefined;
  if (field.choices !== null) {
    return field.choices.find((choice) => textOf(field, choice) === text) ?? { issue: "Please choose one of these" };
  }
  if (field.type === "boolean") return text === "true" ? true : text === "false" ? false : { issue: "Please choose" };
  if (field.type === "string") return withLineFeeds(text);
  const value = Number(text);
  const digits = digitsOf(text);
  if (digits === null) return { issue: "Please enter a number" };
  if (digitsOf(String(value)) !== digits) return { issue: "Please enter a number with fewer digits" };
  return field.type === "number" || Number.isInteger(value) ? value : { issue: "Please enter a whole number" };
}

/** The same for all spellings of one decimal number: `12e-1` for `1.20`. `null`: it is none. */
function digitsOf(text: string): string | null {
  const [match, sign, whole = "", part = "", exponent = "0"] =
    /^([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?$/i.exec(text.trim()) ?? [];
  if (match === undefined || whole + part === "") return null;
  const digits = `${whole}${part}`.replace(/^0+/, "");
  const short = /^.*[^0]/.exec(digits)?.[0] ?? ""; // without the zeros at its end, in one pass
  const size = Number(exponent) - part.length + digits.length - short.length;
  return short === "" ? "0" : `${sign === "-" ? sign : ""}${short}e${size}`;
}

/** The same text with the line breaks of JavaScript: forms send others. */
function withLineFeeds(text: string): string {
  return text.replaceAll(/\r\n?/g, "\n");
}
