// deno task npm [folder]    makes the npm package: holdfast-jobs-<version>.tgz

import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { parse } from "acorn";
import { compactSql } from "../src/stores/postgres/sql/functions.ts";
import { isDocument, packedFiles, toPackedText } from "./packed_docs.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

/** Node 22.13 is the first version that has `node:sqlite` without a flag. */
const NODE = ">=22.13";

const DESCRIPTION =
  "Durable jobs: plain functions whose steps are saved, so that a run continues after a crash. On SQLite or PostgreSQL.";

/** Where the links of the README lead if no repository is given. */
const REPOSITORY = "holdfast/jobs";

/** Packages of which each is needed by one entry point, and installed by those who use it. */
const OPTIONAL = ["@opentelemetry/api", "pg", "postgres"];

/** The commands of the package, by name. */
const COMMANDS: Readonly<Record<string, string>> = {
  "holdfast": `import process from "node:process";
import { processTerminal } from "../src/cli/terminal.js";
import { runCli } from "../src/cli/run_cli.js";

process.exitCode = await runCli(process.argv.slice(2), processTerminal());
`,
  "holdfast-replay": `import { main } from "../src/replay/command/command.js";

await main("holdfast-replay");
`,
  "holdfast-create": `import process from "node:process";
import { runCreate } from "../src/create/run_create.js";

const { log: print, error: note } = console;
process.exitCode = await runCreate(process.argv.slice(2), { print, note, command: "holdfast-create" });
`,
};

interface Manifest {
  name: string;
  version: string;
  exports: Record<string, { types?: string; import: string }>;
  dependencies: Record<string, string>;
  [field: string]: unknown;
}

/**
 * Makes the npm package: what `deno pack` makes of this one, with the fields of `package.json` that it cannot know, with
 * commands, and with types that need no option of `tsc`.
 *
 * @param folder Where it is written to.
 * @param repository The repository on GitHub, as `owner/name`: npm needs it for provenance, and follows the relative links
 * of the README there. Left out: the package names none.
 * @returns Its path.
 */
export async function buildNpmPackage(folder: string, repository?: string): Promise<string> {
  const work = await Deno.makeTempDir({ prefix: "holdfast_npm_" });
  try {
    const packed = join(work, "packed.tgz");
    // Without source maps: they would have the paths of this machine, and the code is hardly changed.
    await run(Deno.execPath(), ["pack", "--allow-dirty", "--no-source-maps", "--output", packed]);
    await run("tar", ["-xzf", packed, "-C", work]);
    const content = join(work, "package");
    const manifestPath = join(content, "package.json");
    const { imports } = JSON.parse(await Deno.readTextFile(join(ROOT, "deno.json")));
    const manifest = complete(JSON.parse(await Deno.readTextFile(manifestPath)), imports, repository);
    await Deno.writeTextFile(manifestPath, `${JSON.stringify(manifest, null, 2)}\n`);
    await compactTemplates(join(content, "src", "stores"));
    await addCommands(content);
    await writeDocuments(content, repository ?? REPOSITORY);
    await writeReadme(content, repository ?? REPOSITORY);
    await referToDisposables(content, manifest);
    await Deno.mkdir(folder, { recursive: true });
    const target = join(folder, `holdfast-jobs-${manifest.version}.tgz`);
    await run("tar", ["-czf", target, "-C", work, "package"]);
    return target;
  } finally {
    await Deno.remove(work, { recursive: true });
  }
}

function complete(
  manifest: Manifest,
  imports: Readonly<Record<string, string>>,
  repository: string | undefined,
): Manifest {
  const withoutTypes = Object.entries(manifest.exports).filter(([, { types }]) => types === undefined);
  if (withoutTypes.length > 0) {
    throw new Error(`There are no types of ${withoutTypes.map(([name]) => name).join(", ")}`);
  }
  // `deno pack` makes a range of a version that deno.json pins.
  const versionOf = (name: string) => imports[name]!.replace(`npm:${name}@`, "");
  const required = Object.keys(manifest.dependencies).filter((name) => !OPTIONAL.includes(name));
  return {
    ...manifest,
    dependencies: Object.fromEntries(required.map((name) => [name, versionOf(name)])),
    peerDependencies: Object.fromEntries(OPTIONAL.map((name) => [name, versionOf(name)])),
    peerDependenciesMeta: Object.fromEntries(OPTIONAL.map((name) => [name, { optional: true }])),
    // A bundler leaves out what is not used: no module does anything but define what it exports.
    sideEffects: false,
    description: DESCRIPTION,
    keywords: ["jobs", "queue", "durable", "workflow", "sqlite", "postgres", "deno", "node", "bun"],
    ...(repository === undefined ? {} : {
      repository: { type: "git", url: `git+https://github.com/${repository}.git` },
      bugs: `https://github.com/${repository}/issues`,
      homepage: `https://github.com/${repository}#readme`,
    }),
    engines: { node: NODE },
    directories: { doc: "docs" },
    bin: Object.fromEntries(Object.keys(COMMANDS).map((name) => [name, `./bin/${name}.js`])),
  };
}

/** `deno pack` knows no commands, and Node 22 no `import.meta.main`, so each gets a file that is nothing else. */
async function addCommands(content: string): Promise<void> {
  await Deno.mkdir(join(content, "bin"));
  for (const [name, code] of Object.entries(COMMANDS)) {
    await Deno.writeTextFile(join(content, "bin", `${name}.js`), `#!/usr/bin/env node\n${code}`, { mode: 0o755 });
  }
}

/** Lets links of documents to what the package does not have lead to the repository. */
async function writeDocuments(content: string, repository: string): Promise<void> {
  const packed = new Set(packedFiles());
  for (const path of [...packed].filter(isDocument)) {
    const text = await Deno.readTextFile(join(ROOT, path));
    await Deno.writeTextFile(join(content, path), toPackedText(path, text, packed, repository));
  }
}

/** Takes comments and indentation out of the SQL of the stores: it is an eighth of a bundle of `PostgresStore`. */
async function compactTemplates(folder: string): Promise<void> {
  for (const name of await readdir(folder, { recursive: true })) {
    if (!name.endsWith(".js")) continue;
    const path = join(folder, name);
    const text = await Deno.readTextFile(path);
    let compact = "";
    let from = 0;
    for (const [start, end] of findTemplateParts(text)) {
      compact += text.slice(from, start) + compactSql(text.slice(start, end));
      from = end;
    }
    await Deno.writeTextFile(path, compact + text.slice(from));
  }
}

/** Where the fixed parts of all templates of a module begin and end, in their order. */
function findTemplateParts(code: string): [start: number, end: number][] {
  const parts: [number, number][] = [];
  const visit = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    const { type, start, end } = node as { type?: string; start: number; end: number };
    if (type === "TemplateElement") parts.push([start, end]);
    else Object.values(node).forEach(visit);
  };
  visit(parse(code, { ecmaVersion: "latest", sourceType: "module" }));
  return parts.sort(([a], [b]) => a - b);
}

/** Writes the README for those who come from npm: its commands are Node's, its links absolute. */
async function writeReadme(content: string, repository: string): Promise<void> {
  const text = await Deno.readTextFile(join(ROOT, "tools", "npm_README.md"));
  const target = `](https://github.com/${repository}/blob/main/`;
  await Deno.writeTextFile(join(content, "README.md"), text.replaceAll(/\]\((?!https?:)/g, target));
}

/** Lets the types say that they need those of `await using`, which `tsc` leaves out by default. */
async function referToDisposables(content: string, { exports }: Manifest): Promise<void> {
  for (const { types } of Object.values(exports)) {
    const path = join(content, types!); // complete() has checked it
    const text = await Deno.readTextFile(path);
    await Deno.writeTextFile(path, `/// <reference lib="esnext.disposable" />\n${text}`);
  }
}

async function run(program: string, args: string[]): Promise<void> {
  const { DENO_COVERAGE_DIR: _left, ...env } = Deno.env.toObject();
  const { success, stderr } = await new Deno.Command(program, { args, cwd: ROOT, clearEnv: true, env }).output();
  if (!success) throw new Error(`${program} ${args[0]} failed: ${new TextDecoder().decode(stderr)}`);
}

if (import.meta.main) {
  const { values, positionals } = parseArgs({
    args: Deno.args,
    options: { repository: { type: "string" } },
    allowPositionals: true,
  });
  console.log(await buildNpmPackage(positionals[0] ?? ".", values.repository));
}
