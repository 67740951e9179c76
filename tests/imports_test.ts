import assert from "node:assert/strict";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { LEAVES } from "../tools/measure.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const ENTRY_POINTS = [
  "mod.ts",
  "src/ai/mod.ts",
  "src/cli/mod.ts",
  "src/client/mod.ts",
  "src/create/mod.ts",
  "src/links/mod.ts",
  "src/http/mcp/mod.ts",
  "src/node/mod.ts",
  "src/otel/mod.ts",
  "src/replay/mod.ts",
  "src/stores/mod.ts",
  "src/stores/postgres/mod.ts",
  "src/testing/contract/mod.ts",
  "src/testing/mod.ts",
  "src/ui/mod.ts",
  "src/webhooks/mod.ts",
];
const IMPORT = /^(?:import|export)\b[^;]*?\bfrom\s+"([^"]+)"|^import\s+"([^"]+)"|\bimport\(\s*"([^"]+)"\s*\)/gm;
/** What each part of `src` may import: the border of what one must hold in mind, and what the leaves beyond it use. */
const BASE = ["store", "model", "values", "statistics"];
const DIRECTIONS: Record<string, readonly string[]> = {
  "mod": ["http", "engine", "execution", "events", "stores", ...BASE],
  "http": ["http", "engine", "events", ...BASE],
  "engine": ["engine", "execution", "events", ...BASE],
  "execution": ["execution", "events", ...BASE],
  "events": ["events", ...BASE],
  "stores": ["stores", ...BASE],
  "statistics": BASE,
  "store": ["store", "model", "values"],
  "model": ["model", "values"],
  "values": ["values", "model"], // the errors
  // Leaves: nothing above imports them.
  "stores/postgres": ["stores/postgres", "stores/copy", "stores", ...BASE],
  "stores/copy": ["stores/copy", "stores/postgres", "stores", ...BASE],
  "ai": ["ai", ...BASE],
  "client": ["client", ...BASE],
  "create": ["create", ...BASE],
  "cli": [
    "cli",
    "client",
    "node",
    "ui",
    "http",
    "stores",
    "stores/postgres",
    "stores/copy",
    "engine",
    "execution",
    "events",
    ...BASE,
  ],
  "replay": ["replay", "stores", "engine", "execution", "events", ...BASE],
  "links": ["links", "http", "engine", "events", ...BASE],
  "http/mcp": ["http/mcp", "http", ...BASE],
  "node": ["node"],
  "otel": ["otel", "engine", "events", ...BASE],
  "testing": ["testing", "stores", "engine", "execution", "events", ...BASE],
  "webhooks": ["webhooks", "http", ...BASE],
  "ui": ["ui"], // files for browsers, which the handler is given
};

/** Every source file, with what it imports: paths from the root of the project, or names of packages. */
function readImports(): Map<string, string[]> {
  const files = ["mod.ts"];
  const visit = (folder: string) => {
    for (const { name, isDirectory } of Deno.readDirSync(join(ROOT, folder))) {
      if (isDirectory) visit(`${folder}/${name}`);
      else if (name.endsWith(".ts")) files.push(`${folder}/${name}`);
    }
  };
  visit("src");
  return new Map(files.map((file) => {
    const targets = [...withoutComments(file).matchAll(IMPORT)].map(([, from, bare, dynamic]) =>
      (from ?? bare ?? dynamic)!
    );
    const paths = targets.map((target) =>
      target.startsWith(".") ? relative(ROOT, join(ROOT, dirname(file), target)).replaceAll("\\", "/") : target
    );
    return [file, paths];
  }));
}

/** The source of a file without comments: docstrings show imports, too. */
function withoutComments(file: string): string {
  return Deno.readTextFileSync(join(ROOT, file)).replaceAll(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "");
}

function layerOf(file: string): string {
  if (file === "mod.ts") return "mod";
  const [, folder, inside] = file.split("/");
  return `${folder}/${inside}` in DIRECTIONS ? `${folder}/${inside}` : folder!;
}

const imports = readImports();
const pairs = [...imports].flatMap(([file, targets]) => targets.map((target) => [file, target] as const));
const local = pairs.filter(([, target]) => imports.has(target));

Deno.test("imports are found at all, and lead to files that exist", () => {
  assert.ok(local.length > 100);
  const missing = pairs.filter(([, target]) => target.endsWith(".ts") && !imports.has(target));
  assert.deepEqual(missing, []);
});

Deno.test("imports point from mod.ts over http, the engine, execution and events to the model, and from the stores; those of leaves do, too, and nothing else imports a leaf", () => {
  const wrong = local.filter(([file, target]) => !DIRECTIONS[layerOf(file)]!.includes(layerOf(target)));

  assert.deepEqual(wrong, []);
});

Deno.test("what is measured as leaves is what only leaves import", () => {
  const leaves = Object.keys(DIRECTIONS).filter((part) =>
    part !== "mod" && Object.entries(DIRECTIONS).every(([by, parts]) => !parts.includes(part) || LEAVES.includes(by))
  );

  assert.deepEqual(leaves.sort(), LEAVES);
});

Deno.test("imports make no cycles, not even of types", () => {
  const done = new Set<string>();
  const cycles: string[][] = [];
  const visit = (file: string, path: readonly string[]) => {
    if (path.includes(file)) return void cycles.push([...path.slice(path.indexOf(file)), file]);
    if (done.has(file)) return;
    for (const target of imports.get(file) ?? []) visit(target, [...path, file]);
    done.add(file);
  };

  for (const file of imports.keys()) visit(file, []);

  assert.deepEqual(cycles, []);
});

Deno.test("imports go to the file itself: nothing but an entry point passes names on", () => {
  const barrels = [...imports.keys()].filter((file) =>
    !ENTRY_POINTS.includes(file) && /^export\b[^;=]*\bfrom\s+"/m.test(Deno.readTextFileSync(join(ROOT, file)))
  );

  assert.deepEqual(barrels, []);
  assert.deepEqual(local.filter(([, target]) => ENTRY_POINTS.includes(target)), []);
});

/** The files that import something as soon as they are loaded themselves. */
function importersOf(target: string): string[] {
  const statement = new RegExp(`^import (?!type\\b)[^;]*"${target}"`, "m");
  return [...imports.keys()].filter((file) => statement.test(Deno.readTextFileSync(join(ROOT, file))));
}

Deno.test("imports of the core are those of the runtime: nobody's code, but for zod (bodies of requests), croner (calendars), a validator of JSON Schema (signals), pg and the API of OpenTelemetry", () => {
  const foreign = pairs.filter(([, target]) => !target.endsWith(".ts") && !target.startsWith("node:"));

  assert.deepEqual(foreign.toSorted(), [
    ["src/engine/runs/check_payload.ts", "@cfworker/json-schema"], // its types
    ["src/engine/runs/check_payload.ts", "@cfworker/json-schema"],
    ["src/engine/schedules/calendar.ts", "croner"],
    ["src/engine/schedules/slot_count.ts", "croner"],
    ["src/http/requests/body_schemas.ts", "zod/mini"],
    ["src/http/requests/body_schemas.ts", "zod/v4/locales/en.js"],
    ["src/otel/metrics.ts", "@opentelemetry/api"],
    ["src/otel/otel.ts", "@opentelemetry/api"],
    ["src/otel/spans.ts", "@opentelemetry/api"],
    ["src/stores/postgres/database/client.ts", "pg"], // its types
    ["src/stores/postgres/database/client.ts", "pg"], // its types
    ["src/stores/postgres/database/client.ts", "pg"],
    ["src/ui/build_assets.ts", "acorn"], // a task of the repository alone
    ["src/ui/build_assets.ts", "esbuild"],
    ["src/ui/build_assets.ts", "src/ui/app/vendor/htm.js"],
    ["src/ui/build_assets.ts", "terser"],
  ]);
});

Deno.test("imports load neither a database driver nor a validator until they are asked for", () => {
  assert.deepEqual(importersOf("node:sqlite"), []);
  assert.deepEqual(importersOf("pg"), []);
  assert.deepEqual(local.filter(([file, target]) => !file.startsWith("src/otel/") && layerOf(target) === "otel"), []);
  assert.deepEqual(importersOf("./body_schemas.ts"), []);
  assert.deepEqual(importersOf("@cfworker/json-schema"), []);
  assert.deepEqual(importersOf("zod/mini"), ["src/http/requests/body_schemas.ts"]);
});

Deno.test("imports of the routes lead to no engine: a route gets one from its guard, and not otherwise", () => {
  const engines = local.filter(([file, target]) =>
    /^src\/http\/(route\.ts$|routes\.ts$|routes\/)/.test(file) && layerOf(target) === "engine"
  );

  assert.deepEqual(engines, []);
});

Deno.test("@holdfast/jobs/testing does not load the tests of stores", () => {
  const found = new Set(["src/testing/mod.ts"]);
  for (const file of found) for (const target of imports.get(file) ?? []) found.add(target);

  assert.ok(found.size > 100);
  assert.deepEqual([...found].filter((file) => file.startsWith("src/testing/contract/")), []);
});

Deno.test("imports of src/store/ bring no values, but for what reads.ts makes of them: src/stores/mod.ts passes on all their names, as types", async () => {
  for (const file of imports.keys()) {
    if (file === "src/store/reads.ts" || !file.startsWith("src/store/")) continue;
    assert.deepEqual(Object.keys(await import(`../${file}`)), [], file);
    assert.ok(imports.get("src/stores/mod.ts")!.includes(file), file);
  }
});

/** Helpers for writing a store, which are no rules for stores: one outside of this package does it in its own way. */
const HELPER_FILES = [
  "holds.ts",
  "operate/blocker_facts.ts",
  "operate/find_blockers.ts",
  "part_builder.ts",
  "record_rules.ts",
  "run_conditions.ts",
  "store_calls.ts",
];
const HELPERS = [
  "addCounts",
  "addHeld",
  "addLatencies",
  "addUnread",
  "checkOptionNames",
  "decode",
  "isOneOf",
  "isSameJson",
  "MESSAGE_VALUES",
  "NO_COUNTS",
  "NO_SAMPLE",
  "RUN_VALUES",
  "SEARCHED_BY_END",
  "STEP_VALUES",
  "WAIT_VALUES",
];

Deno.test("imports of MemoryStore are names that a store outside of this package can import, or helpers", () => {
  const entry = withoutComments("src/stores/mod.ts");
  const passesOnAll = [...entry.matchAll(/^export type \* from "([^"]+)"/gm)].map(([, from]) => from!);
  const names = new Set([...entry.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(([, list]) => namesIn(list!)));
  const missing: string[] = [];

  for (const file of imports.keys()) {
    if (!file.startsWith("src/stores/memory/")) continue;
    for (const [, list, from] of withoutComments(file).matchAll(/^import (?:type )?\{([^}]*)\} from "([^"]+)"/gm)) {
      const target = relative(join(ROOT, "src/stores"), join(ROOT, dirname(file), from!)).replaceAll("\\", "/");
      if (
        target.startsWith("memory/") || HELPER_FILES.includes(target) || passesOnAll.some((all) => all.endsWith(target))
      ) continue;
      missing.push(...namesIn(list!).filter((name) => !names.has(name) && !HELPERS.includes(name)));
    }
  }

  assert.ok(names.size > 50, `${names.size} names`);
  assert.deepEqual([...new Set(missing)], []);
});

/** The names in a list of an import or an export. */
function namesIn(list: string): string[] {
  return list.split(",").map((name) => name.trim().replace(/^type /, "")).filter((name) => name !== "");
}
