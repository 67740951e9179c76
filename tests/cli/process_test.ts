import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { PassThrough } from "node:stream";
import { fileURLToPath } from "node:url";
import { askYesOrNo } from "../../src/cli/terminal.ts";
import { needs } from "../support/platform.ts";
import { aFile, fill } from "./places.ts";

const COMMAND = fileURLToPath(new URL("../../src/cli/mod.ts", import.meta.url));

async function holdfast(args: readonly string[], env: Record<string, string>, rights: readonly string[] = ["-A"]) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", ...rights, "--no-check", COMMAND, ...args],
    env: { HOLDFAST_STORE: "", ...env },
    stdin: "null",
  }).output();
  const [out, error] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  return { code, out: out!, error: error! };
}

Deno.test("holdfast is a program: results go to stdout without escape codes, notes to stderr, and it has an exit code", async () => {
  await using file = await aFile();
  const { failed } = await fill(file.store);
  const env = { HOLDFAST_STORE: file.path, FORCE_COLOR: "1" };

  const listed = await holdfast(["runs", "--limit", "1"], env);
  const followed = await holdfast(["tail", failed, "--json"], env);
  const asked = await holdfast(["delete", failed], env);
  const gone = await holdfast(["runs"], { HOLDFAST_STORE: `${file.path}.none` });

  assert.deepEqual([listed, followed, asked, gone].map(({ code }) => code), [0, 1, 2, 3]);
  assert.equal(listed.out.split("\n").length, 3);
  assert.ok(!listed.out.includes("\x1b"));
  assert.equal(listed.error, "1 of 5 runs; --limit shows more\n");
  assert.equal(JSON.parse(followed.out).type, "run:fail");
  assert.deepEqual([asked.out, gone.out], ["", ""]);
});

Deno.test("holdfast reads a file without the right to write it, and then says that it cannot write", async () => {
  await using file = await aFile();
  const { waiting } = await fill(file.store);
  const rights = ["--no-prompt", "--allow-read", "--allow-env", "--allow-sys"];
  const call = (...args: string[]) => holdfast(args, { HOLDFAST_STORE: file.path }, rights);

  const [why, checked, cancelled] = [await call("why", waiting), await call("doctor"), await call("cancel", waiting)];

  assert.match(why.out, /^Waiting for a signal to "review"/);
  assert.match(checked.error, /^Nothing is wrong/);
  assert.equal(cancelled.code, 3);
  assert.match(cancelled.error, /attempt to write a readonly database/);
});

Deno.test("holdfast says in one line that it may not read the file", async () => {
  await using file = await aFile();

  const { code, error } = await holdfast(["runs"], { HOLDFAST_STORE: file.path }, ["--no-prompt", "--allow-env"]);

  assert.match(error, /^Cannot open "[^"]+": Requires read access[^\n]*\n$/);
  assert.equal(code, 3);
});

Deno.test("a question of holdfast is answered by y or yes, and by no when its input ends", async () => {
  const ask = async (text: string) => {
    const input = new PassThrough();
    input.end(text);
    return await askYesOrNo("Delete 2 runs?", input, new PassThrough().resume());
  };

  const answers = await Promise.all(["y\n", " Yes\n", "n\n", "\n", ""].map(ask));

  assert.deepEqual(answers, [true, true, false, false, false]);
});

Deno.test("holdfast says in one line that its result cannot be written", needs("a full device"), async () => {
  await using file = await aFile();
  await fill(file.store);
  const call = (...args: string[]) => {
    const full = openSync("/dev/full", "w");
    try {
      const command = ["run", "-A", "--no-check", COMMAND, ...args, "--store", file.path];
      const { status, stderr } = spawnSync(Deno.execPath(), command, { stdio: ["ignore", full, "pipe"] });
      return { code: status, error: stderr.toString() };
    } finally {
      closeSync(full);
    }
  };

  const ended = [call("--version"), call("runs"), call("runs", "--json"), call("ui")];

  for (const { code, error } of ended) {
    assert.match(error, /^Cannot write the result: [^\n]+\n$/);
    assert.equal(code, 1);
  }
});

Deno.test("holdfast ends without a word when nobody reads its result or its notes any more", async () => {
  await using file = await aFile();
  await fill(file.store);
  const call = async (args: string[], closed: "stdout" | "stderr") => {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", COMMAND, ...args, "--store", file.path],
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const other = closed === "stdout" ? child.stderr : child.stdout;
    const [text, { code }] = await Promise.all([new Response(other).text(), child.status, child[closed].cancel()]);
    return { text, code };
  };

  const runs = await call(["runs"], "stdout");
  const misspelled = await call(["runz"], "stderr");

  assert.deepEqual(runs, { text: "", code: 0 });
  assert.deepEqual(misspelled, { text: "", code: 2 });
});

Deno.test("holdfast --help takes less than three times the processor time of an empty program, since it loads no engine", async () => {
  const cli = JSON.stringify(new URL("../../src/cli/mod.ts", import.meta.url).href);
  const help = `import { runCli } from ${cli}; await runCli(["--help"], { print: () => {} });`;
  await measureSeconds(help); // the first time compiles

  const empty: number[] = [];
  const seconds: number[] = [];
  for (let pair = 0; pair < 4; pair++) {
    empty.push(await measureSeconds(""));
    seconds.push(await measureSeconds(help));
  }

  assert.ok(Math.min(...seconds) < 3 * Math.min(...empty), `${seconds} s, empty ${empty} s`);
});

/** The processor time of a program. */
async function measureSeconds(program: string): Promise<number> {
  const code = `
    import process from "node:process";
    ${program}
    const { user, system } = process.cpuUsage();
    console.log((user + system) / 1e6);`;
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: ["eval", code], stdin: "null" }).output();
  return Number(new TextDecoder().decode(stdout).trim() || NaN);
}
