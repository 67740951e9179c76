import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { browserTest } from "./browser_tests.ts";
import { until } from "../processes/deadline.ts";

const SOURCE = new URL("../../src/client/mod.ts", import.meta.url).href;

/** Triggers a run in the page, and follows it there. */
async function follow(page: Page): Promise<string> {
  const args = ["bundle", "--quiet", "--platform", "browser", SOURCE];
  const { stdout } = await new Deno.Command(Deno.execPath(), { args }).output();
  await page.route("**/client.js", (route) => {
    return route.fulfill({ contentType: "text/javascript", body: new TextDecoder().decode(stdout) });
  });
  return await page.evaluate(async (address) => {
    const { createClient } = await import(address);
    const client = createClient({ url: "/api/jobs" });
    const { runId } = await client.trigger("publish", { title: "Emma" });
    const seen: string[] = [];
    Object.assign(globalThis, { seen });
    (async () => {
      for await (const event of client.watch(runId)) {
        seen.push(event.stepName === undefined ? event.type : `${event.type} ${event.stepName}`);
      }
      seen.push("the end");
    })();
    return runId;
  }, "/client.js");
}

/** What `watch()` has shown so far: events with the names of their steps. */
function seenBy(page: Page): Promise<string[]> {
  return page.evaluate(() => (globalThis as unknown as { seen: string[] }).seen);
}

async function untilSeen(page: Page, what: string): Promise<string[]> {
  await until(async () => (await seenBy(page)).includes(what), `watch() was to show ${what}`);
  return await seenBy(page);
}

async function approve(url: string, runId: string): Promise<void> {
  const api = `${url}api/jobs`;
  const [wait] = await (await fetch(`${api}/waits?runId=${runId}`)).json();
  const body = JSON.stringify({ signalId: "elsewhere", payload: { approved: true } });
  const response = await fetch(`${api}/signal?runId=${runId}&waitId=${wait.id}`, { method: "POST", body });
  assert.equal((await response.json()).disposition, "accepted");
}

/** A server that passes requests on, and ends each event stream after the first line that begins so, with its message. */
function cuttingProxy(target: string, line: "data:" | "id:") {
  const connections: (string | null)[] = [];
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, async (request) => {
    const { pathname, search, searchParams } = new URL(request.url);
    const { method, headers, body } = request;
    const answer = await fetch(new URL(`${pathname}${search}`, target), { method, headers, body });
    if (!pathname.endsWith("/subscribe") || answer.body === null) return answer;
    connections.push(searchParams.get("lastEventId"));
    return new Response(answer.body.pipeThrough(cutAfter(line)), answer);
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}/`,
    connections,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

function cutAfter(line: string): TransformStream<Uint8Array, Uint8Array> {
  const end = new RegExp(`^${line}.*\n\n`, "m");
  let text = "";
  return new TransformStream({
    transform(bytes, controller) {
      for (const byte of bytes) {
        text += String.fromCharCode(byte);
        controller.enqueue(Uint8Array.of(byte));
        if (end.test(text)) return controller.terminate();
      }
    },
  });
}

const PAGES = [1, 2, 3, 4].map((page) => `step:complete set page ${page}`);

browserTest(
  "watch() goes on when the server was killed and started again, and misses nothing",
  async ({ open, start }) => {
    const { url, server } = await start();
    const page = await open(url);
    const runId = await follow(page);
    await untilSeen(page, PAGES[1]!);

    await server.kill();
    await start(new URL(url).port);
    await untilSeen(page, "run:waiting");
    await approve(url, runId);
    const seen = await untilSeen(page, "the end");

    assert.deepEqual(seen.filter((event) => event.startsWith("step:complete")), [...PAGES, "step:complete publish"]);
    assert.deepEqual(seen.slice(-2), ["run:complete", "the end"]);
    assert.equal(seen.filter((event) => event === "snapshot").length, 1);
  },
);

browserTest("watch() through a proxy that cuts after each id shows each event once", async ({ open, start }) => {
  const { url } = await start();
  await using proxy = cuttingProxy(url, "id:");
  const page = await open(proxy.url);

  const runId = await follow(page);
  await untilSeen(page, "run:waiting");
  await approve(url, runId);
  const seen = await untilSeen(page, "the end");

  assert.deepEqual(seen.filter((event) => event.startsWith("step:complete")), [...PAGES, "step:complete publish"]);
  assert.deepEqual(seen.slice(-2), ["run:complete", "the end"]);
  assert.deepEqual(seen.filter((event) => /snapshot|run:waiting/.test(event)), ["snapshot", "run:waiting"]);
  assert.ok(proxy.connections.length > 5, `${proxy.connections.length} connections`);
  assert.deepEqual(proxy.connections.filter((lastId) => lastId === null), [null], "each but the first one resumes");
});

browserTest("watch() through a proxy that cuts before each id shows the state again", async ({ open, start }) => {
  const { url } = await start();
  await using proxy = cuttingProxy(url, "data:");
  const page = await open(proxy.url);

  const runId = await follow(page);
  await untilSeen(page, "run:waiting");
  await approve(url, runId);
  const seen = await untilSeen(page, "the end");

  assert.deepEqual(seen.slice(-3), ["snapshot", "run:complete", "the end"]);
  assert.equal(seen.filter((event) => event === "snapshot").length, proxy.connections.length);
  assert.ok(proxy.connections.length > 2, `${proxy.connections.length} connections`);
});
