// deno task evidence [--only NAME,...] [--minutes N] [--seeds N]
//
// Executes the tools that look for broken promises, writes what they counted to docs/evidence.json, and puts it into the
// pages. --only takes names of KINDS in evidence_pages.ts; `pages` renews the pages from the file, and executes nothing. Ends
// with status 1 if a promise was broken, a mutant was not found, or a tool could not be executed.

import { parseArgs } from "node:util";
import {
  brokenIn,
  type Evidence,
  type EvidenceRun,
  type Kind,
  type KindName,
  KINDS,
  renew,
  TEXTS,
} from "./evidence_pages.ts";
import { runTool } from "./run_tool.ts";

const ROOT = new URL("../", import.meta.url);
const FILE = new URL("docs/evidence.json", ROOT);

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    minutes: { type: "string", default: "2" },
    seeds: { type: "string", default: "300" },
  },
});
const names = values.only?.split(",") ?? Object.keys(KINDS);
for (const name of names) {
  if (name !== "pages" && !(name in KINDS)) {
    throw new RangeError(`--only is some of pages, ${Object.keys(KINDS).join(", ")}`);
  }
}
const limits = { minutes: positive(values.minutes), seeds: positive(values.seeds) };
const evidence: Evidence = JSON.parse(await Deno.readTextFile(FILE).catch(() => "{}"));
let isOk = true;
for (const name of names) {
  if (name === "pages") continue;
  try {
    const run = await execute(KINDS[name as KindName]);
    evidence[name as KindName] = run;
    await Deno.writeTextFile(FILE, JSON.stringify(sorted(evidence), null, 2) + "\n");
    isOk &&= brokenIn(run) === 0;
  } catch (error) {
    console.error(`${name}: ${error instanceof Error ? error.message : error}`);
    isOk = false;
  }
}
for (const [path, texts] of Object.entries(TEXTS)) {
  const url = new URL(path, ROOT);
  await Deno.writeTextFile(url, renew(await Deno.readTextFile(url), texts, evidence));
}
await output("deno", "fmt", "--quiet", ...Object.keys(TEXTS));
if (!isOk) Deno.exit(1);

function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0 && value < Infinity)) throw new RangeError(`${text} is no positive number`);
  return value;
}

async function execute(kind: Kind): Promise<EvidenceRun> {
  const args = kind.command(limits);
  const load = Deno.loadavg()[0]!;
  const changes = await output(
    "git",
    "status",
    "--porcelain",
    "--",
    "src",
    "tests",
    "mod.ts",
    "deno.json",
    "deno.lock",
  );
  const commit = await output("git", "log", "-1", "--abbrev=8", "--format=%h", "--", "src", "mod.ts");
  const revision = commit + (changes === "" ? "" : "+");
  const startedAt = performance.now();
  const { results, isOk } = await runTool(args);
  const run = {
    command: ["deno task", ...args.map((arg) => arg.includes(" ") ? `"${arg}"` : arg)].join(" "),
    revision,
    date: new Date().toISOString().slice(0, "2000-01-01".length),
    minutes: Math.round((performance.now() - startedAt) / 6_000) / 10,
    deno: Deno.version.deno,
    cores: navigator.hardwareConcurrency,
    load: Math.round(load * 10) / 10,
    results,
  };
  if (results.every(({ broken }) => broken === null)) throw new Error(`it cannot be tried here: ${results[0]?.told}`);
  if (!isOk && brokenIn(run) === 0) throw new Error(`"${run.command}" failed, and says nothing of a broken promise`);
  return run;
}

/** In the order of KINDS, however they were executed. */
function sorted(evidence: Evidence): Evidence {
  const names = Object.keys(KINDS) as KindName[];
  return Object.fromEntries(names.filter((name) => name in evidence).map((name) => [name, evidence[name]]));
}

async function output(command: string, ...args: string[]): Promise<string> {
  const program = command === "deno" ? Deno.execPath() : command;
  const { stdout, stderr, success } = await new Deno.Command(program, { args, cwd: ROOT }).output();
  const decoder = new TextDecoder();
  if (!success) throw new Error(`${command} ${args.join(" ")}: ${decoder.decode(stderr)}`);
  return decoder.decode(stdout).trim();
}
