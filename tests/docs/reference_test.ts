import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { COMMANDS } from "../../src/cli/run_cli.ts";
import { routes } from "../../src/http/routes.ts";
import { readPages, toPath, toUrl } from "./pages.ts";

const read = (page: string) => readFileSync(toUrl(`docs/reference/${page}.md`), "utf8");

Deno.test("reference/http.md has each route", () => {
  const page = read("http");

  // `/waits/open` stands in a row with others, and so do the three routes of bulk operations.
  const missing = Object.values(routes).filter(({ path }) => !page.includes(`\`${path}`));

  assert.deepEqual(missing.map(({ method, path }) => `${method} ${path}`), []);
});

Deno.test("reference/cli.md has each command", () => {
  const page = read("cli");

  const missing = COMMANDS.filter(({ name }) => !new RegExp(`holdfast ${name}\\b|\`${name}\``).test(page));

  assert.deepEqual(missing.map(({ name }) => name), []);
});

Deno.test("commands that people read exist, and take what is named behind them", () => {
  const texts = [...readPages().map(({ text }) => text), readFileSync(toUrl("skills/holdfast/SKILL.md"), "utf8")];
  const calls = texts.flatMap((text) => Array.from(text.matchAll(/\bholdfast ([a-z][a-z-]+) ([A-Z]+)\b/g)));

  const wrong = calls.filter(([, command, argument]) => {
    const usage = COMMANDS.find(({ name }) => name === command)?.usage ?? "";
    return !new RegExp(`\\b${argument}\\b`).test(usage);
  });

  assert.deepEqual(wrong.map(([call]) => call), []);
  assert.ok(calls.length > 10);
});

/** What `deno doc --json` says of an interface or a class. */
interface DocNode {
  name: string;
  declarations?: { kind: string; def?: { properties?: { name: string }[]; methods?: { name: string }[] } }[];
}

/** The public names of an entry point, with their members. */
function readPublicNames(entryPoint = "mod.ts"): DocNode[] {
  const { stdout, success } = new Deno.Command(Deno.execPath(), {
    args: ["doc", "--json", toPath(entryPoint)],
    stdout: "piped",
    stderr: "null",
  }).outputSync();
  assert.ok(success);
  const { nodes } = JSON.parse(new TextDecoder().decode(stdout)) as { nodes: Record<string, { symbols: DocNode[] }> };
  return Object.values(nodes).flatMap(({ symbols }) => symbols);
}

const OPTIONS = [
  "EngineOptions",
  "WorkerOptions",
  "HandlerOptions",
  "HandlerLimits",
  "HandlerAuth",
  "JobDefinition",
  "FlowDefinition",
  "ChangeDefinition",
  "StepOptions",
  "RetryPolicy",
  "WaitForSignalOptions",
  "TriggerOptions",
  "FlowOptions",
  "InvokeOptions",
  "RunFilter",
  "IdleOptions",
  "PurgeOptions",
  "SqliteStoreOptions",
];

Deno.test("reference/options.md has each option", () => {
  const page = read("options");
  const names = readPublicNames();

  const members = OPTIONS.flatMap((option) => {
    const found = names.filter(({ name }) => name === option).flatMap(({ declarations = [] }) => declarations);
    const properties = found.flatMap(({ def }) => def?.properties ?? []);
    assert.ok(properties.length > 0, option);
    return properties.map(({ name }) => ({ option, name }));
  });

  assert.deepEqual(members.filter(({ name }) => !new RegExp(`\\b${name}\\b`).test(page)), []);
});

/** The strings in a source file that match a pattern, each once. */
function stringsOf(path: string, pattern: RegExp): string[] {
  const found = readFileSync(toUrl(path), "utf8").matchAll(pattern);
  return [...new Set([...found].map(([, name]) => name!))];
}

Deno.test("reference/events.md has each event", () => {
  const types = stringsOf("src/model/event.ts", /type: "([a-z-]+:[a-z-]+)"/g);

  assert.ok(types.length > 20);
  assert.deepEqual(types.filter((type) => !read("events").includes(`\`${type}\``)), []);
});

Deno.test("reference/errors.md has each code, and each class", () => {
  const codes = stringsOf("src/model/error.ts", /^ {2}\| "([a-z_]+)"/gm);
  const classes = stringsOf("src/model/error.ts", /^export class (\w+)/gm);
  const page = read("errors");

  // The codes of the two errors that only jobs throw never leave their step.
  const missing = codes.filter((code) =>
    !["non_retryable", "retry_after"].includes(code) && !page.includes(`\`${code}\``)
  );

  assert.ok(codes.length > 15 && classes.length > 10);
  assert.deepEqual([...missing, ...classes.filter((name) => !page.includes(`\`${name}\``))], []);
});

/** Which interfaces a name in the pages stands for. */
const OBJECTS: Record<string, readonly string[]> = {
  engine: ["Engine"],
  step: ["StepContext"],
  handler: ["Handler", "RouteFunctions"],
  client: ["Client"],
  store: ["Store", "SqliteStore", "PostgresStore"],
};

Deno.test("the members of the engine, the step, the handler, the client and the stores that sentences name exist", () => {
  const names = ["mod.ts", "src/client/mod.ts", "src/stores/postgres/mod.ts"].flatMap((path) => readPublicNames(path));
  const membersOf = (types: readonly string[]) =>
    names.filter(({ name }) => types.includes(name)).flatMap(({ declarations = [] }) =>
      declarations.flatMap(({ def }) => [...(def?.properties ?? []), ...(def?.methods ?? [])].map(({ name }) => name))
    );
  const members = new Map(Object.entries(OBJECTS).map(([object, types]) => [object, new Set(membersOf(types))]));
  const pages = readPages().filter(({ path }) => !path.startsWith("docs/adr/") && path !== "tests/README.md");

  const spans = pages.flatMap(({ path, prose }) =>
    prose.flatMap((line, at) =>
      [...line.matchAll(/`(?:await )?(engine|step|handler|client|store)\.(?!ts\b)(\w+)/g)].map((
        [, object, member],
      ) => ({
        place: `${path}:${at + 1}`,
        object: object!,
        member: member!,
      }))
    )
  );
  const wrong = spans.filter(({ object, member }) => !members.get(object)!.has(member));

  for (const [object, set] of members) assert.ok(set.size > 5, object);
  assert.ok(spans.length > 150, `${spans.length}`);
  assert.deepEqual(wrong, []);
});
