// deno task bench:gate REVISION [part of a name ...] [--threshold SPEED] [--times N]
//
// Compares this checkout with a commit of its history, and ends with status 1 if something is slower than the threshold
// (0.9: nine tenths of the speed) by more than randomness explains. Both are measured in one process, in turn, so the
// result does not depend on the machine.

import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

const { values, positionals: [revision, ...names] } = parseArgs({
  args: Deno.args,
  allowPositionals: true,
  options: { threshold: { type: "string", default: "0.9" }, times: { type: "string", default: "1" } },
});
if (revision === undefined) {
  console.error("Usage: deno task bench:gate REVISION [part of a name ...] [--threshold SPEED] [--times N]");
  Deno.exit(2);
}

const folder = await Deno.makeTempDir({ prefix: "holdfast_base_" });
if (await run("git", ["worktree", "add", "--quiet", "--detach", folder, revision]) !== 0) {
  await Deno.remove(folder, { recursive: true });
  Deno.exit(2);
}
let code: number;
try {
  const options = ["--threshold", values.threshold, "--times", values.times];
  const script = ["run", "-A", "--v8-flags=--expose-gc", "bench/against.ts", folder, ...names, ...options];
  code = await run(Deno.execPath(), script);
} finally {
  await run("git", ["worktree", "remove", "--force", folder]);
}
Deno.exit(code);

/** Runs a program in this checkout, and answers its exit code. */
async function run(program: string, args: string[]): Promise<number> {
  const { code } = await new Deno.Command(program, { args, cwd: ROOT, stdout: "inherit", stderr: "inherit" }).spawn()
    .status;
  return code;
}
