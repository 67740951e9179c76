// deno task prove-fixes [commit ...] [--last N]
//
// Whether each fix has a test that fails without it. For each commit whose subject begins with `fix`, in a checkout of its
// own: the files of `src` are taken back to what they were before it, and the tests that it touched are executed. Ends with
// status 1 if they pass all the same. Without commits it takes the last 20.

import { parseArgs } from "node:util";

/** What the tests say about a fix. */
export type Proof =
  | "proved" // they fail without it, and pass with it
  | "not proved" // they pass without it
  | "no test" // it touched none
  | "no source" // it changed nothing in `src`
  | "not loaded" // without it they cannot even be loaded, which is no answer
  | "fails with it"; // they fail with it, too

/** The tests that show what a changed file does: itself, or those that execute the contract of stores. */
export function testsOf(files: readonly string[]): string[] {
  const tests = files.filter((file) => /^tests\/.*_test\.ts$/.test(file));
  if (!files.some((file) => file.startsWith("src/testing/contract/"))) return tests;
  const contract = ["tests/stores/memory/memory_store_test.ts", "tests/stores/sqlite/contract_test.ts"];
  if (files.some((file) => file.startsWith("src/stores/postgres/"))) {
    contract.push("tests/stores/postgres/postgres_store_test.ts");
  }
  return [...new Set([...tests, ...contract])];
}

/** The files that a fix is made of. What is built from others, and the contract of stores, which is a test, are none. */
export function sourcesOf(files: readonly string[]): string[] {
  return files.filter((file) => /^(src|mod\.ts)\b/.test(file))
    .filter((file) => !/^src\/(testing\/contract\/|ui\/assets\.ts$|create\/templates\.ts$)/.test(file));
}

/** Whether the output of `deno test` says that a file could not be loaded, so that no test of it was executed. */
export function isNotLoaded(output: string): boolean {
  return /error: (Uncaught )?(SyntaxError|Module not found|Import )|\(uncaught error\)/.test(output) ||
    !/\| \d+ passed/.test(output);
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { last: { type: "string", default: "20" } },
  });
  if (!/^[1-9]\d{0,3}$/.test(values.last)) {
    console.error(`--last is a number of commits from 1 to 9999, not "${values.last}"`);
    Deno.exit(2);
  }
  const last = ["log", "--format=%h", "--extended-regexp", "--grep=^fix[(:]", `-${values.last}`];
  const commits = positionals.length > 0 ? positionals : lines(await git(".", ...last));
  const folder = await Deno.makeTempDir({ prefix: "holdfast_fixes_" });
  const counts = new Map<Proof, number>();
  try {
    await git(".", "worktree", "add", "--detach", "--quiet", `${folder}/tree`, "HEAD");
    for (const commit of commits) {
      const { proof, subject } = await prove(`${folder}/tree`, commit);
      counts.set(proof, (counts.get(proof) ?? 0) + 1);
      console.log(`${proof.padEnd(13)} ${commit} ${subject}`);
    }
  } finally {
    await git(".", "worktree", "remove", "--force", `${folder}/tree`);
    await Deno.remove(folder, { recursive: true });
  }
  console.log(`\n${[...counts].map(([proof, count]) => `${count} ${proof}`).join(", ")}`);
  if (counts.has("not proved") || counts.has("no test")) Deno.exit(1);
}

/** Takes the source of one commit back, and executes its tests. */
async function prove(tree: string, commit: string): Promise<{ proof: Proof; subject: string }> {
  await git(tree, "checkout", "--force", "--quiet", "--detach", commit);
  await git(tree, "clean", "-ffdq");
  const subject = (await git(tree, "log", "-1", "--format=%s")).trim();
  const changed = lines(await git(tree, "diff", "--name-only", "--no-renames", "HEAD^", "HEAD"));
  const kept = lines(await git(tree, "diff", "--name-only", "--no-renames", "--diff-filter=d", "HEAD^", "HEAD"));
  const sources = sourcesOf(changed);
  const tests = testsOf(kept);
  if (sources.length === 0) return { proof: "no source", subject };
  if (tests.length === 0) return { proof: "no test", subject };
  const before = new Set(lines(await git(tree, "ls-tree", "-r", "--name-only", "HEAD^", "--", ...sources)));
  if (before.size > 0) await git(tree, "checkout", "HEAD^", "--", ...before);
  for (const added of sources.filter((file) => !before.has(file))) await Deno.remove(`${tree}/${added}`);
  const without = await runTests(tree, tests);
  if (without.success) return { proof: "not proved", subject };
  if (isNotLoaded(without.output)) return { proof: "not loaded", subject };
  await git(tree, "checkout", "--force", "--quiet", "HEAD", "--", ".");
  return { proof: (await runTests(tree, tests)).success ? "proved" : "fails with it", subject };
}

async function runTests(tree: string, tests: readonly string[]): Promise<{ success: boolean; output: string }> {
  const { success, output } = await execute(Deno.execPath(), ["test", "-A", "--no-check", ...tests], tree);
  return { success, output };
}

async function git(folder: string, ...args: string[]): Promise<string> {
  const { success, output } = await execute("git", args, folder);
  if (!success) throw new Error(`git ${args.join(" ")}: ${output}`);
  return output;
}

async function execute(program: string, args: string[], cwd: string): Promise<{ success: boolean; output: string }> {
  const { success, stdout, stderr } = await new Deno.Command(program, { args, cwd, env: { NO_COLOR: "1" } }).output();
  return { success, output: [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes)).join("") };
}

function lines(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}
