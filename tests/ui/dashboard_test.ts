import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { createEngine, createHandler, type HandlerAuth, MemoryStore } from "@holdfast/jobs";
import { dashboard } from "@holdfast/jobs/ui";
import { ASSETS, HASH } from "../../src/ui/assets.ts";
import { buildAssets } from "../../src/ui/build_assets.ts";

const MAX_BYTES = 132_000;
const MAX_GZIP_BYTES = 44_500;

/** Asks a handler with a dashboard, under `/api`. */
async function ask(path: string, auth?: HandlerAuth<unknown>, method = "GET"): Promise<Response> {
  await using engine = createEngine({ store: new MemoryStore(), jobs: {} });
  const { fetch } = createHandler(engine, {
    basePath: "/api",
    ui: dashboard({ title: `<b>"Jobs"</b>` }),
    ...(auth === undefined ? {} : { auth }),
  });
  return await fetch(new Request(`http://localhost/api${path}`, { method }));
}

const hooks = { onTrigger: () => {}, onRunAccess: () => {}, scopeRuns: (_: unknown, filter: object) => filter };
const refusing: HandlerAuth<unknown> = {
  authenticate: () => {
    throw new Response(null, { status: 401 });
  },
  ...hooks,
};

Deno.test("assets.ts is what the task makes of the files of the dashboard", async () => {
  const built = await buildAssets();

  assert.equal(built, await Deno.readTextFile(new URL("../../src/ui/assets.ts", import.meta.url)));
});

Deno.test("the files of the dashboard keep their budget", () => {
  const served = Object.entries(ASSETS).filter(([name]) => !name.endsWith(".txt")).map(([, text]) => text).join("\n");

  const [bytes, gzipBytes] = [new TextEncoder().encode(served).length, gzipSync(served, { level: 9 }).length];

  assert.ok(bytes <= MAX_BYTES, `${bytes} bytes`);
  assert.ok(gzipBytes <= MAX_GZIP_BYTES, `${gzipBytes} bytes compressed`);
});

Deno.test("GET /ui answers the page of /ui/, with the addresses that its files have from there", async () => {
  const response = await ask("/ui");

  const page = await response.text();
  const withSlash = await (await ask("/ui/")).text();
  assert.equal(response.status, 200);
  assert.equal(page.replaceAll(/(src|href)="ui\//g, '$1="'), withSlash);
  assert.notEqual(page, withSlash);
});

Deno.test("GET /ui/ answers a page without inline code, under a strict policy", async () => {
  const response = await ask("/ui/");

  const page = await response.text();
  assert.equal(response.status, 200);
  assert.equal(response.headers.get("content-type"), "text/html; charset=utf-8");
  assert.equal(
    response.headers.get("content-security-policy"),
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
      "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  );
  assert.equal(response.headers.get("referrer-policy"), "no-referrer");
  assert.equal(response.headers.get("x-content-type-options"), "nosniff");
  assert.match(page, /<title>&lt;b&gt;&quot;Jobs&quot;&lt;\/b&gt;<\/title>/);
  assert.doesNotMatch(page, /<script[^>]*>[^<]|style="|\son\w+=|(?:src|href)="(?:\/|https?:)/);
});

Deno.test("GET /ui/ serves each file that the page names, to be kept", async () => {
  const page = await (await ask("/ui/")).text();
  const names = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, name]) => name!);

  assert.deepEqual(names.map((name) => name.split("/").at(-1)), ["icon.svg", "app.css", "app.js"]);
  for (const name of names) {
    const response = await ask(`/ui/${name}`);
    await response.text();
    assert.equal(response.status, 200, name);
    assert.equal(response.headers.get("cache-control"), "private, max-age=31536000, immutable");
  }
});

Deno.test("GET /ui/ answers 404 to what is no file, and 405 to other methods", async () => {
  const paths = [
    "/ui/app.js",
    `/ui/-/${HASH}/`,
    `/ui/-/${HASH}/index.html`,
    `/ui/-/${HASH}/__proto__`,
    "/ui/-/0/app.js",
  ];

  for (const path of paths) assert.equal((await ask(path)).status, 404, path);
  const posted = await ask("/ui/", undefined, "POST");
  assert.deepEqual([posted.status, posted.headers.get("allow")], [405, "GET, HEAD"]);
});

Deno.test("GET /ui/ is for those whom onOperate admits, or for everybody if the host opens it", async () => {
  const operations: string[] = [];
  const admitting: HandlerAuth<unknown> = {
    ...hooks,
    authenticate: () => "ana",
    onOperate: (_, { operation }) => void operations.push(operation),
  };

  const statuses = [
    (await ask("/ui/", refusing)).status,
    (await ask("/ui/", { ...hooks, authenticate: () => "ana" })).status,
    (await ask("/ui/", admitting)).status,
    (await ask("/ui/", { ...refusing, open: ["ui"] })).status,
    (await ask("/stats", { ...refusing, open: ["ui"] })).status,
  ];

  assert.deepEqual(statuses, [401, 403, 200, 200, 401]);
  assert.deepEqual(operations, ["ui"]);
});

Deno.test("a handler without a dashboard has no path for it", async () => {
  await using engine = createEngine({ store: new MemoryStore(), jobs: {} });
  const { fetch } = createHandler(engine);

  const { status } = await fetch(new Request("http://localhost/ui/"));

  assert.equal(status, 404);
});

Deno.test("dashboard() and createHandler() refuse options that are not valid", async () => {
  await using engine = createEngine({ store: new MemoryStore(), jobs: {} });

  for (
    const options of [{ titel: "x" }, { title: "" }, { title: "x".repeat(61) }, { traceUrl: "javascript:alert(1)" }]
  ) {
    assert.throws(() => dashboard(options), TypeError);
  }
  for (const ui of [true, {}, dashboard]) {
    assert.throws(() => createHandler(engine, { ui: ui as never }), { message: "ui must be what dashboard() returns" });
  }
});
