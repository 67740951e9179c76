// deno task bench:gate REVISION [part of a name ...] [--threshold SPEED] [--times N]
//
// Compares this checkout with a commit of its history, and ends with status 1 if something is slower than the threshold
// (0.9: nine tenths of the speed) by more than randomness explains. Both are measured in one process, in turn, so the
// result does not depend on the machine. Then it compares this checkout with a fixed revision in the same way: many changes
// that each cost a little less than the threshold allows are noticed there.

import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

// Only a person moves it, to a revision that is faster: 4242a7f1, before transactions, streams and messages.
const FIXED_REVISION = "4242a7f1c4ef4942f6c9840c68f2d94ae7282b05";

const { values, positionals: [revision, ...names] } = parseArgs({
  args: Deno.args,
  allowPositionals: true,
  options: { threshold: { type: "string", default: "0.9" }, times: { type: "string", default: "1" } },
});
if (revision === undefined) {
  console.error("Usage: deno task bench:gate REVISION [part of a name ...] [--threshold SPEED] [--times N]");
  Deno.exit(2);
}

let code = 0;
for (const base of new Set([revision, FIXED_REVISION])) {
  console.log(`Compared with ${base}:`);
  code = Math.max(code, await compareWith(base));
}
Deno.exit(code);

/** Compares this checkout with a revision, and answers the exit code: 2 if there is no such revision. */
async function compareWith(base: string): Promise<number> {
  const folder = await Deno.makeTempDir({ prefix: "holdfast_base_" });
  if (await run("git", ["worktree", "add", "--quiet", "--detach", folder, base]) !== 0) {
    await Deno.remove(folder, { recursive: true });
    return 2;
  }
  try {
    const options = ["--threshold", values.threshold, "--times", values.times];
    const script = ["run", "-A", "bench/against.ts", folder, ...names, ...options];
    return await run(Deno.execPath(), script);
  } finally {
    await run("git", ["worktree", "remove", "--force", folder]);
  }
}

/** Runs a program in this checkout, and answers its exit code. */
async function run(program: string, args: string[]): Promise<number> {
  const { code } = await new Deno.Command(program, { args, cwd: ROOT, stdout: "inherit", stderr: "inherit" }).spawn()
    .status;
  return code;
}
