// Executes the programs of docs/guides/frameworks.md on Node, with the npm package.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { readPages } from "../docs/pages.ts";
import { inTime } from "../processes/deadline.ts";
import { TextLineStream } from "../processes/text_line_stream.ts";
import { findObstacle, install, type Installation, run } from "./runtimes.ts";

const FRAMEWORKS = [
  "express@5",
  "fastify@5",
  "hono@4",
  "@hono/node-server@1",
  "next@16",
  "react@19",
  "react-dom@19",
  "vite@8",
];

const obstacle = await findObstacle();
if (obstacle !== null) console.log(`The programs for frameworks are not executed: ${obstacle}`);

let installation: Installation;

function test(name: string, body: () => Promise<void>): void {
  Deno.test({ name, ignore: obstacle !== null, fn: body });
}

Deno.test.beforeAll(async () => {
  if (obstacle !== null) return;
  installation = await install(FRAMEWORKS);
  const page = readPages().find(({ path }) => path === "docs/guides/frameworks.md")!; // it exists
  for (const { info, code } of page.blocks) {
    if (info !== "js ignore") continue;
    const [first, ...lines] = code.split("\n");
    const path = join(installation.folder, first!.replace("// ", ""));
    await Deno.mkdir(dirname(path), { recursive: true });
    await Deno.writeTextFile(path, lines.join("\n"));
  }
  await Deno.writeTextFile(
    join(installation.folder, "index.html"),
    '<script type="module" src="/src/main.js"></script>',
  );
});
Deno.test.afterAll(async () => {
  if (obstacle === null) await installation[Symbol.asyncDispose]();
});

const node = () => installation.runtimes.find(({ name }) => name === "Node 24")!.program; // it was installed

/** Starts a program of Node, calls a function with its address, and ends it. */
async function serve(args: readonly string[], body: (url: string) => Promise<void>): Promise<void> {
  const { DENO_COVERAGE_DIR: _left, NODE_OPTIONS: _options, ...env } = Deno.env.toObject();
  const server = new Deno.Command(node(), {
    args: [...args],
    cwd: installation.folder,
    clearEnv: true,
    env: { ...env, PORT: "0", NO_COLOR: "1", NEXT_TELEMETRY_DISABLED: "1" },
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const lines = server.stdout.pipeThrough(new TextLineStream());
  try {
    await body(`http://127.0.0.1:${await inTime(portOf(lines), `${args.join(" ")} was to listen`)}`);
  } finally {
    server.kill("SIGKILL");
    await server.status;
  }
}

/** The port that a server prints, as `port 8000` or as a part of its address. */
async function portOf(lines: ReadableStream<string>): Promise<string> {
  const reader = lines.getReader();
  while (true) {
    const { value, done } = await reader.read();
    assert.ok(!done, "the server has ended");
    const port = /(?:port |127\.0\.0\.1:)(\d+)/.exec(value)?.[1];
    if (port === undefined) continue;
    reader.releaseLock();
    void lines.pipeTo(new WritableStream()).catch(() => {}); // the pipe must not fill
    return port;
  }
}

/** Triggers a run, reads its stream to the end, and opens the dashboard with and without a slash. */
async function passes(origin: string): Promise<void> {
  const url = `${origin}/api/jobs`;
  const body = JSON.stringify({ jobName: "greet", input: { name: "Ada" } });
  const triggered = await fetch(`${url}/trigger`, { method: "POST", headers: JSON_TYPE, body });
  const { runId } = await triggered.json();
  assert.equal(triggered.status, 200);
  const stream = await (await fetch(`${url}/subscribe?runId=${runId}`)).text();
  assert.match(stream, /"type":"run:complete".*"output":"Hello, Ada!"|"output":"Hello, Ada!".*"type":"run:complete"/);
  for (const path of ["ui", "ui/"]) {
    const response = await fetch(`${url}/${path}`);
    assert.equal(response.status, 200, path);
    const page = await response.text();
    const file = /src="([^"]+app\.js)"/.exec(page)?.[1];
    const script = await fetch(new URL(file!, response.url)); // the page has a script
    assert.equal(script.status, 200, path);
    await script.text();
  }
}

const JSON_TYPE = { "content-type": "application/json" };

for (const program of ["node.mjs", "express.mjs", "fastify.mjs", "hono.mjs"]) {
  test(`the program ${program} of the guide serves the handler`, () => serve([program], passes));
}

test("the files of the guide for Next.js serve the handler, after a build in which no worker starts", async () => {
  const next = join("node_modules", "next", "dist", "bin", "next");

  await run(node(), [next, "build"], installation.folder);

  await serve([next, "start", "-p", "0", "-H", "127.0.0.1"], passes);
});

test("a page that Vite builds has the client, and not the engine", async () => {
  const vite = join("node_modules", "vite", "bin", "vite.js");

  await run(node(), [vite, "build"], installation.folder);

  const assets = join(installation.folder, "dist", "assets");
  const [{ name }] = [...Deno.readDirSync(assets)] as [Deno.DirEntry];
  const { size } = await Deno.stat(join(assets, name));
  assert.ok(size < 10_000, `${size} bytes`);
});
