import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { ASSETS } from "../../src/ui/assets.ts";
import { bundle, findObstacle } from "../node/bundle.ts";
import { inTime } from "../processes/deadline.ts";
import { TextLineStream } from "../processes/text_line_stream.ts";

const SERVER = new URL("programs/server.ts", import.meta.url);
const IMPORTS = ["@holdfast/jobs", "@holdfast/jobs/ui", "croner"]; // all that the server imports by name
const { DENO_COVERAGE_DIR: _left, ...ENV } = Deno.env.toObject();

const folder = await Deno.makeTempDir({ prefix: "holdfast_one_file_" });
Deno.test.afterAll(() => Deno.remove(folder, { recursive: true }));

const obstacle = await findObstacle();
if (obstacle !== null) console.log(`The dashboard of a bundled program is not tested: ${obstacle}`);

Deno.test(
  "a program in one file serves the dashboard, and may read no files",
  { ignore: obstacle !== null },
  async () => {
    const program = await bundle([SERVER], folder);

    // Without the permission to read, a request for a file that is not in the program would fail.
    const served = await filesOf(Deno.execPath(), [
      "run",
      "--no-config",
      "--no-prompt",
      "--allow-net=127.0.0.1",
      program,
    ]);

    assert.deepEqual(served, expectedFiles());
  },
);

const compiled = await compile();
if (compiled === null) {
  console.log("The dashboard of a compiled program is not tested: deno compile cannot download its runtime");
}

Deno.test("a compiled program serves the dashboard without the sources", { ignore: compiled === null }, async () => {
  const served = await filesOf(compiled!, []); // ignored without it

  assert.deepEqual(served, expectedFiles());
});

/** Compiles the server. `null`: the runtime that a compiled program contains cannot be downloaded. */
async function compile(): Promise<string | null> {
  // A configuration of its own: with that of this repository, the program would contain every npm package that it names.
  const { default: { imports } } = await import("../../deno.json", { with: { type: "json" } });
  const config = `${folder}/deno.json`;
  const root = new URL("../../", import.meta.url);
  const named = Object.entries<string>(imports).filter(([name]) => IMPORTS.includes(name))
    .map(([name, to]) => [name, to.startsWith("./") ? new URL(to, root).href : to]);
  await Deno.writeTextFile(config, JSON.stringify({ imports: Object.fromEntries(named) }));
  const program = `${folder}/server${Deno.build.os === "windows" ? ".exe" : ""}`;
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["compile", "--no-check", "--config", config, "--allow-net=127.0.0.1", "-o", program, fileURLToPath(SERVER)],
    clearEnv: true,
    env: { ...ENV, NO_COLOR: "1" },
  }).output();
  if (success) return program;
  const message = new TextDecoder().decode(stderr);
  if (/Setting up base binary|error sending request/.test(message)) return null;
  throw new Error(`deno compile failed: ${message}`);
}

/** Starts a server in an empty folder, and reads its page and the files that the page names, by their names. */
async function filesOf(program: string, args: readonly string[]): Promise<Map<string, string>> {
  const cwd = await Deno.makeTempDir({ dir: folder });
  const server = new Deno.Command(program, {
    args: [...args],
    cwd,
    clearEnv: true,
    env: ENV,
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const lines = server.stdout.pipeThrough(new TextLineStream()).getReader();
  try {
    const { value: url } = await inTime(lines.read(), "the server was to listen");
    const page = await readFile(url!); // it has printed a line
    const names = [...page.matchAll(/(?:src|href)="(-\/[^/]+\/([^"]+))"/g)].map(([, path, name]) => [path!, name!]);
    const served = new Map<string, string>();
    for (const [path, name] of names) served.set(name!, await readFile(new URL(path!, url).href));
    return served;
  } finally {
    server.kill("SIGKILL");
    await Promise.all([server.status, lines.cancel()]);
  }
}

async function readFile(url: string): Promise<string> {
  const response = await fetch(url);
  const text = await response.text();
  assert.equal(response.status, 200, url);
  return text;
}

/** All files but the page, which names the others, and the licences, which nothing loads. */
function expectedFiles(): Map<string, string> {
  const loaded = Object.entries(ASSETS).filter(([name]) => !/\.(?:html|txt)$/.test(name));
  return new Map(loaded);
}
