import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { PGlite } from "@electric-sql/pglite";
import { COMMANDS } from "../../src/cli/run_cli.ts";
import { parseArguments } from "../../src/cli/command.ts";
import { routes } from "../../src/http/routes.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import configuration from "../../deno.json" with { type: "json" };
import { findProgram } from "../support/find_program.ts";
import { type CodeBlock, readPages, toUrl } from "./pages.ts";

/** How the blocks of each language are checked. Others are not allowed. */
const CHECKED_BY: Record<string, string> = {
  "ts": "`executed_blocks_test.ts`, which executes them",
  "ts ignore":
    "`tests/long/block_types_test.ts`: they open ports and databases, or are parts of a program, so only types are checked",
  "js ignore": "`tests/npm/frameworks_test.ts`, which executes them on Node, with the packages that they import",
  "json": "a test of this file: they parse",
  "sql": "a test of this file: each SELECT is executed on new tables; statements that make roles are excluded",
  "sh": "a test of this file: commands of this project exist, with these options, routes and files",
  "console": "as `sh`; what the commands print is excluded",
  "text": "nobody: a drawing, or what a program prints",
  "yaml": "promtool, where it is installed (`tests/http/promtool_test.ts`); the rest is for Kubernetes and CI",
  "ini": "a test of this file, where systemd is installed",
  "dockerfile": "nobody: there is no container engine",
};

const blocks = readPages().flatMap(({ path, blocks }) => blocks.map((block) => ({ path, ...block })));
const isOfLanguage = (...languages: string[]) => ({ info }: CodeBlock) => languages.includes(info);
const placeOf = ({ path, line }: { path: string; line: number }) => `${path}:${line}`;

Deno.test("each code block has a language that is checked, or of which it is said why not", () => {
  const others = blocks.filter(({ info }) => CHECKED_BY[info] === undefined);

  assert.ok(blocks.length > 50, `${blocks.length} blocks`);
  assert.deepEqual(others.map((block) => `${placeOf(block)} ${block.info}`), []);
});

Deno.test("JSON parses", () => {
  for (const block of blocks.filter(isOfLanguage("json"))) {
    assert.doesNotThrow(() => JSON.parse(block.code), placeOf(block));
  }
});

const SELECTS = blocks.filter(isOfLanguage("sql")).filter(({ code }) => code.startsWith("SELECT"));
const OF_POSTGRES = /\bholdfast\./;

Deno.test("each SELECT that a page shows can be executed on the tables of SQLite", async () => {
  const folder = mkdtempSync(join(tmpdir(), "selects-"));
  using _cleanup = { [Symbol.dispose]: () => rmSync(folder, { recursive: true }) };
  const file = join(folder, "jobs.db");
  await using store = await SqliteStore.open(file);
  await store.migrate();
  using database = new DatabaseSync(file, { readOnly: true });

  const selects = SELECTS.filter(({ code }) => !OF_POSTGRES.test(code));

  assert.ok(selects.length > 0);
  for (const select of selects) assert.doesNotThrow(() => database.prepare(select.code).all(), placeOf(select));
});

Deno.test("each SELECT that a page shows can be executed on the tables of PostgreSQL", async () => {
  const database = await PGlite.create();
  try {
    await using store = PostgresStore.from(database, { durability: "relaxed" });
    await store.migrate();

    const selects = SELECTS.filter(({ code }) => OF_POSTGRES.test(code));

    assert.ok(selects.length > 0);
    for (const select of selects) await assert.doesNotReject(database.query(select.code), placeOf(select));
  } finally {
    await database.close();
  }
});

const ENTRY_POINTS = Object.keys(configuration.exports).map((name) => `jsr:@holdfast/jobs${name.slice(1)}`);

/** Why a line of a shell cannot be right; `null`: nothing is wrong, or it is a command of another program. */
function wrongCommand(line: string): string | null {
  const command = line.replace(/^\$ /, "").replace(/\s#.*$/, "").trim();
  const task = /^(?:\w+=\S+ )*(?:npx -y )?deno task ([\w:-]+)/.exec(command)?.[1];
  if (task !== undefined && !(task in configuration.tasks)) return `there is no task ${task}`;
  for (const [path] of command.matchAll(/\b(?:examples|tests|bench|site)\/[\w./-]*/g)) {
    if (!existsSync(toUrl(path))) return `there is no ${path}`;
  }
  for (const [name] of command.matchAll(/jsr:@holdfast\/jobs(?:\/\w+)?/g)) {
    if (!ENTRY_POINTS.includes(name)) return `there is no ${name}`;
  }
  const route = /\/api\/jobs(\/[\w/.-]+)/.exec(command)?.[1];
  if (route !== undefined && !Object.values(routes).some(({ path }) => path === route) && !route.startsWith("/ui")) {
    return `there is no route ${route}`;
  }
  return /^(?:\w+=\S+ )*holdfast /.test(command) ? wrongHoldfast(command) : null;
}

function wrongHoldfast(command: string): string | null {
  const words = command.replace(/^(?:\w+=\S+ )*holdfast /, "").match(/'[^']*'|\S+/g) ?? [];
  const [name, ...args] = words.map((word) => word.replaceAll("'", ""));
  const found = COMMANDS.find((command) => command.name === name);
  if (found === undefined) return `there is no command ${name}`;
  try {
    parseArguments(found, args);
    return null;
  } catch (error) {
    return String(error);
  }
}

Deno.test("the commands that pages show exist", () => {
  const lines = blocks.filter(isOfLanguage("sh", "console")).flatMap((block) => {
    const shown = block.code.replaceAll("\\\n", " ").split("\n");
    return shown.filter((line) => block.info === "sh" || line.startsWith("$ ")).map((line) => [block, line] as const);
  });

  const wrong = lines.flatMap(([block, line]) => {
    const reason = wrongCommand(line);
    return reason === null ? [] : [`${placeOf(block)} ${line}: ${reason}`];
  });

  assert.ok(lines.length > 20);
  assert.deepEqual(wrong, []);
});

Deno.test("the commands that sentences name exist", () => {
  const spans = readPages().filter(({ path }) => !path.startsWith("docs/adr/") && path !== "CHANGELOG.md").flatMap((
    page,
  ) =>
    page.prose.flatMap((line, at) =>
      [...line.matchAll(/`((?:holdfast|deno) [^`]+)`/g)].map(([, command]) => ({
        path: page.path,
        line: at + 1,
        command: command!,
      }))
    )
  );

  const wrong = spans.flatMap((span) => {
    const reason = wrongCommand(span.command.replaceAll(/[<>…[\]]/g, ""));
    return reason === null ? [] : [`${placeOf(span)} ${span.command}: ${reason}`];
  });

  assert.ok(spans.length > 30, `${spans.length}`);
  assert.deepEqual(wrong, []);
});

Deno.test("a command that does not exist is found", () => {
  const wrong = [
    "deno task no-such-task",
    "deno run -A examples/no_such_file.ts",
    "deno run jsr:@holdfast/jobs/no",
    "curl localhost:8000/api/jobs/no-such-route",
    "$ holdfast runs --no-such-option",
  ];

  assert.deepEqual(wrong.filter((line) => wrongCommand(line) === null), []);
});

const systemd = findProgram("systemd-analyze");
if (systemd === null) console.log("The units are not checked: there is no systemd-analyze");

Deno.test("systemd finds nothing wrong with the units", { ignore: systemd === null }, () => {
  const folder = mkdtempSync(join(tmpdir(), "units-"));
  using _cleanup = { [Symbol.dispose]: () => rmSync(folder, { recursive: true }) };
  const units = blocks.filter(isOfLanguage("ini")).flatMap(({ code }) => {
    const [, ...parts] = code.split(/^# \/etc\/systemd\/system\/(\S+)\n/m);
    return Array.from({ length: parts.length / 2 }, (_, n) => ({ name: parts[2 * n]!, text: parts[2 * n + 1]! }));
  });
  for (const { name, text } of units) {
    writeFileSync(join(folder, name), text.replace(/\/usr\/local\/bin\/deno/, Deno.execPath()));
  }

  const { success, stderr } = new Deno.Command(systemd!, { // ignored without it
    args: ["verify", ...units.map(({ name }) => join(folder, name))],
    env: { SYSTEMD_LOG_TARGET: "console" },
    stdout: "null",
    stderr: "piped",
  }).outputSync();

  assert.ok(units.length >= 3);
  const complaints = new TextDecoder().decode(stderr).split("\n").filter((line) =>
    line.includes(folder) || line.startsWith("jobs")
  );
  assert.deepEqual([success, ...complaints], [true]);
});
