import { createEngine } from "../../src/engine/create_engine.ts";
import { createHandler } from "../../src/http/handler.ts";
import type { Lease } from "../../src/model/lease.ts";
import { formatPlace } from "../../src/model/stream.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { PROTECTIVE_HEADERS } from "../../src/http/response.ts";
import { systemHost } from "../../src/model/host.ts";
import { aClaimRequest } from "../support/fixtures.ts";
import { aJob } from "../support/jobs.ts";

/** A stream of the protocol: a run under a lease of the adapter, which writes its items. */
interface Kept {
  runId: string;
  lease: Lease;
  contentType: string;
  last: number;
  items: number;
  isClosed: boolean;
}

const NAME = "items";

/**
 * Serves the whole Durable Streams protocol for its conformance suite: reads go to the handler, and writes to the store, as a
 * step would write.
 */
export async function serveAdapter(): Promise<
  { url: string; firstWait: Promise<void>; stop: () => Promise<void> }
> {
  const store = new MemoryStore();
  await store.migrate();
  const engine = createEngine({ store, jobs: { write: aJob(() => {}, "write") }, logger: null });
  // A case of the suite waits for a long poll to end, and takes five seconds at most.
  const host = {
    ...systemHost,
    schedule: (ms: number, call: () => void) => systemHost.schedule(Math.min(ms, 1_000), call),
  };
  const handler = createHandler(engine, { host });
  const streams = new Map<string, Kept>();
  const firstWait = Promise.withResolvers<void>();

  const append = async (kept: Kept, body: string): Promise<boolean> => {
    const items = isJson(kept.contentType) ? [JSON.parse(body)].flat() : [body];
    if (items.length === 0) return false;
    kept.last += 1;
    const text = JSON.stringify(items);
    const chunk = { stream: NAME, position: kept.last, after: kept.last - 1, first: kept.items, count: items.length };
    const rest = { size: 100 * kept.last, items: text, isPermanent: false };
    await store.appendItems([{ lease: kept.lease, chunks: [{ ...chunk, ...rest }] }]);
    kept.items += items.length;
    return true;
  };
  const close = async (kept: Kept) => {
    kept.isClosed = true;
    await store.cancel(kept.runId, "close", null);
  };
  const offsetOf = async ({ runId }: Kept) => formatPlace((await store.readStream(runId, NAME, null, 0))!.end);
  const headersOf = async (kept: Kept) => ({
    "content-type": kept.contentType,
    "stream-next-offset": await offsetOf(kept),
    ...(kept.isClosed ? { "stream-closed": "true" } : {}),
  });

  const put = async (path: string, request: Request): Promise<Response> => {
    const contentType = request.headers.get("content-type") ?? "application/octet-stream";
    const closes = request.headers.get("stream-closed") === "true";
    const body = await readBody(request, contentType);
    const known = streams.get(path);
    if (known !== undefined) {
      const isSame = typeOf(known.contentType) === typeOf(contentType) && known.isClosed === closes;
      return new Response(null, { status: isSame ? 200 : 409, headers: await headersOf(known) });
    }
    const { id: runId } = await engine.trigger("write", null);
    const { claims: [claim] } = await store.claim(aClaimRequest({ jobNames: ["write"], limit: 1, leaseMs: 1e9 }));
    const kept: Kept = { runId, lease: claim!.lease, contentType, last: 0, items: 0, isClosed: false };
    try {
      if (body !== "") await append(kept, body);
    } catch {
      return new Response(null, { status: 400 });
    }
    streams.set(path, kept);
    if (closes) await close(kept);
    return new Response(null, { status: 201, headers: { location: request.url, ...await headersOf(kept) } });
  };
  const post = async (kept: Kept, request: Request): Promise<Response> => {
    const closes = request.headers.get("stream-closed")?.toLowerCase() === "true";
    const body = await readBody(request, kept.contentType);
    if (kept.isClosed) {
      const status = closes && body === "" ? 204 : 409;
      return new Response(null, { status, headers: await headersOf(kept) });
    }
    if (body !== "" || !closes) {
      const contentType = request.headers.get("content-type");
      if (body === "" || contentType === null) return new Response(null, { status: 400 });
      if (typeOf(contentType) !== typeOf(kept.contentType)) return new Response(null, { status: 409 });
      try {
        if (!await append(kept, body)) return new Response(null, { status: 400 });
      } catch {
        return new Response(null, { status: 400 });
      }
    }
    if (closes) await close(kept);
    const { "content-type": _, ...headers } = await headersOf(kept);
    return new Response(null, { status: 204, headers });
  };
  const read = async (kept: Kept, request: Request): Promise<Response> => {
    const { search } = new URL(request.url);
    if (search.includes("live=")) firstWait.resolve();
    const url = new URL(`http://localhost/stream${search}`);
    url.searchParams.set("runId", kept.runId);
    url.searchParams.set("name", NAME);
    if (!isJson(kept.contentType)) url.searchParams.set("as", "text");
    const response = await handler.fetch(new Request(url, { method: request.method, headers: request.headers }));
    const headers = new Headers(response.headers);
    const isStream = headers.get("content-type") === "text/event-stream";
    if (response.ok && response.status === 200 && !isStream) headers.set("content-type", kept.contentType);
    const isBytes = response.status === 200 && !isStream && !isUtf8(kept.contentType);
    const body = isBytes ? Uint8Array.from(await response.text(), (char) => char.charCodeAt(0)) : response.body;
    return new Response(body, { status: response.status, headers });
  };

  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, async (request) => {
    const response = await respond(request);
    const headers = new Headers(response.headers);
    for (const [name, value] of Object.entries(PROTECTIVE_HEADERS)) headers.set(name, value);
    return new Response(response.body, { status: response.status, headers });
  });
  const respond = async (request: Request): Promise<Response> => {
    const path = new URL(request.url).pathname;
    if (request.method === "PUT") return await put(path, request);
    const kept = streams.get(path);
    if (kept === undefined) return new Response(null, { status: 404 });
    switch (request.method) {
      case "POST":
        return await post(kept, request);
      case "DELETE":
        streams.delete(path);
        if (!kept.isClosed) await store.cancel(kept.runId, "delete", null);
        await store.delete(kept.runId);
        return new Response(null, { status: 204 });
      default:
        return await read(kept, request);
    }
  };
  return {
    url: `http://127.0.0.1:${server.addr.port}`,
    /** Resolves when a client first waits for items. */
    firstWait: firstWait.promise,
    stop: async () => {
      await engine.stop({ timeout: 0 });
      await server.shutdown();
    },
  };
}

function typeOf(contentType: string): string {
  return contentType.split(";")[0]!.trim().toLowerCase();
}

function isJson(contentType: string): boolean {
  return typeOf(contentType) === "application/json";
}

function isUtf8(contentType: string): boolean {
  return isJson(contentType) || typeOf(contentType).startsWith("text/");
}

/** The body as a string: bytes as characters of the same number. */
async function readBody(request: Request, contentType: string): Promise<string> {
  if (isUtf8(contentType)) return await request.text();
  return Array.from(await request.bytes(), (byte) => String.fromCharCode(byte)).join("");
}
