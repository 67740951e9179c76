import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";

const ROOT = new URL("../", import.meta.url);
const { exports, imports, tasks } = JSON.parse(await Deno.readTextFile(new URL("deno.json", ROOT)));
const entryPoints = Object.entries<string>(exports);
/** The public names of each entry point. A new one is a promise: it is added here by hand. */
const PUBLIC: Record<string, string[]> = JSON.parse(
  await Deno.readTextFile(new URL("tests/public_names.json", ROOT)),
);

/** What people start with, by entry point: each shows how it is used. */
const START: Readonly<Record<string, readonly string[]>> = {
  ".": [
    "createEngine",
    "createHandler",
    "defineJob",
    "MemoryStore",
    "NonRetryableError",
    "notFound",
    "persistLogs",
    "RetryAfterError",
    "shutdownOnSignal",
    "SqliteStore",
    "toClientRun",
  ],
  "./ai": ["durableModel"],
  "./client": ["createClient"],
  "./links": ["signedLinks"],
  "./mcp": ["mcp"],
  "./otel": ["otel"],
  "./postgres": ["PostgresStore"],
  "./ui": ["dashboard"],
  "./webhooks": ["githubWebhook", "standardWebhook", "stripeWebhook", "webhook", "webhookJob"],
};

interface Documented {
  jsDoc?: { doc?: string; tags?: { kind: string; doc?: string }[] };
}
interface Documentation {
  module_doc?: Documented["jsDoc"];
  symbols: { name: string; declarations: Documented[] }[];
}

async function makeDocumentation(path: string): Promise<Documentation> {
  const { stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["doc", "--json", fileURLToPath(new URL(path, ROOT))],
    stderr: "inherit",
  }).output();
  const { nodes } = JSON.parse(new TextDecoder().decode(stdout));
  return Object.values<Documentation>(nodes)[0]!;
}

const documentation = new Map<string, Promise<Documentation>>();

/** What `deno doc` says of a file. */
function read(path: string): Promise<Documentation> {
  const known = documentation.get(path) ?? makeDocumentation(path);
  documentation.set(path, known);
  return known;
}

const hasExample = ({ jsDoc }: Documented) => jsDoc?.tags?.some(({ kind }) => kind === "example") ?? false;

for (const [name, path] of entryPoints) {
  Deno.test(`the entry point "${name}" says what it is, and shows how it is used`, async () => {
    const { module_doc: jsDoc, symbols } = await read(path);

    assert.ok((jsDoc?.doc ?? "").length > 0, "it has no module documentation");
    assert.ok(hasExample({ jsDoc }) || jsDoc?.doc?.includes("```"), "its module documentation has no example");
    for (const start of START[name] ?? []) {
      const declarations = symbols.find((symbol) => symbol.name === start)?.declarations ?? [];
      assert.ok(declarations.some(hasExample), `${start} has no @example`);
    }
  });
}

for (const [name, path] of entryPoints) {
  Deno.test(`the entry point "${name}" exports the names of tests/public_names.json, and no others`, async () => {
    const names = (await read(path)).symbols.map((symbol) => symbol.name);

    const isNew = names.filter((one) => !PUBLIC[name]?.includes(one));
    const isGone = (PUBLIC[name] ?? []).filter((one) => !names.includes(one));

    assert.deepEqual({ isNew, isGone }, { isNew: [], isGone: [] });
  });
}

Deno.test("every entry point is in the import map, so that examples can import it", () => {
  for (const [name, path] of entryPoints) assert.equal(imports[`@holdfast/jobs${name.slice(1)}`], path);
});

Deno.test("every entry point is among those whose documentation is checked", () => {
  const files = entryPoints.map(([, path]) => path.replace("./", ""));

  const [, checked = ""] = /deno doc --lint (.*)/.exec(tasks["lint:docs"]) ?? [];

  assert.deepEqual(checked.split(" ").sort(), files.toSorted());
});
