import assert from "node:assert/strict";
import { type } from "arktype";
import { z } from "zod";
import type { Job } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { JobCatalog } from "../../../src/model/job/job_catalog.ts";
import type { ChangeDefinition } from "../../../src/model/job/job_changes.ts";
import type { Schema } from "../../../src/model/schema.ts";
import { anything } from "../../support/stores/for_each_store.ts";

function aJob(
  name: string,
  options: Omit<ChangeDefinition, "previous"> & { previous?: Job[]; input?: Schema } = {},
): Job {
  return defineJob({ name, input: anything, run: () => {}, ...options });
}

Deno.test("defineJob() refuses what it says about changes if that cannot be", () => {
  const cases: [ChangeDefinition, string | RegExp][] = [
    [{ version: 0 }, 'The version of job "a" must be an integer from 1, not 0'],
    [{ version: 1.5 }, 'The version of job "a" must be an integer from 1, not 1.5'],
    [{ version: "2" as never }, /The version of job "a" must be an integer from 1, not a string/],
    [{ version: 2, continues: [2] }, 'continues of job "a" has its own version, 2'],
    [{ continues: 1 as never }, /continues of job "a" must be an array/],
    [{ changes: { removed: ["x"], added: ["x"] } }, '"x" of job "a" is both removed and added'],
    [{ changes: { renamed: { x: "y" }, removed: ["x"] } }, '"x" of job "a" is both renamed and removed'],
    [{ changes: { renamed: { x: "y", y: "x" } } }, /The names "[xy]" and "[xy]" of job "a" are renamed in a circle/],
    [{ changes: { renamed: { x: "x" } } }, 'The names "x" and "x" of job "a" are renamed in a circle'],
    [{ changes: { rename: {} } as never }, /changes of job "a".*rename/],
    [{ changes: { renamed: [["x", "y"]] as never } }, 'changes.renamed of job "a" must be an object, not an Array'],
    [
      { changes: { renamed: new Map([["x", "y"]]) as never } },
      /changes.renamed of job "a" must be an object, not a Map/,
    ],
    [
      { changes: { renamed: { "x#2": "y" } } },
      /A name in changes.renamed of job "a" has no occurrence: "x", not "x#2"/,
    ],
    [{ changes: { added: ["x#2"] } }, /A name in changes.added of job "a" has no occurrence: "x", not "x#2"/],
    [{ recheckInput: "no" as never }, 'recheckInput of job "a" must be true or false, not a string'],
    [{ onDivergence: "wait" as never }, /onDivergence of job "a" must be "hold", "continue" or "fail", not "wait"/],
    [{ upgradeInput: {} as never }, /upgradeInput of job "a" must be a function/],
    [{ aliases: [""] }, /A name in aliases of job "a"/],
    [{ previous: [aJob("b")] }, /previous of job "a" has a definition of job "b"/],
    [{ previous: aJob("a") as never }, 'previous of job "a" must be an array, not an object'],
    [{ previous: [{ name: "a" }] as never }, 'previous of job "a" has something that defineJob() has not made'],
  ];

  for (const [options, message] of cases) {
    assert.throws(() => aJob("a", options as never), { message }, JSON.stringify(options));
  }
});

Deno.test("a catalog refuses two jobs for one alias, and two definitions of one version", () => {
  const cases: [Job[], string][] = [
    [[aJob("a"), aJob("b", { aliases: ["a"] })], 'Job "b" has the alias "a", which is the name of another job'],
    [[aJob("b", { aliases: ["old"] }), aJob("a", { aliases: ["old"] })], 'Jobs "b" and "a" both have the alias "old"'],
    [[aJob("a", { previous: [aJob("a")] })], 'Two definitions of "a" have version 1'],
    [[aJob("a", { version: 2, continues: [1], previous: [aJob("a")] })], 'Two definitions of "a" have version 1'],
  ];

  for (const [jobs, message] of cases) assert.throws(() => new JobCatalog(jobs), { name: "TypeError", message });
});

Deno.test("a catalog knows each name and version, and the definition that executes it", () => {
  const first = aJob("a");
  const second = aJob("a", { version: 2 });
  const newest = aJob("a", { version: 4, continues: [3], previous: [first, second], aliases: ["old"] });

  const catalog = new JobCatalog([newest]);

  const known = catalog.known.map(({ name, version }) => `${name} ${version}`).sort();
  assert.deepEqual(known, ["a 1", "a 2", "a 3", "a 4", "old 1", "old 2", "old 3", "old 4"]);
  assert.equal(catalog.executing("a", 3)!.job, newest);
  assert.equal(catalog.executing("old", 2)!.job, second);
  assert.equal(catalog.executing("a", 5), undefined);
  assert.equal(catalog.find("old")!.job, newest);
  assert.equal(catalog.find("a")!.job, newest);
  assert.equal(catalog.find(first)!.job, first);
  assert.equal(catalog.find("b"), undefined);
});

Deno.test("a catalog knows the definitions that a previous one has before it", () => {
  const first = aJob("a");
  const second = aJob("a", { version: 2, previous: [first] });

  for (const previous of [[second], [second, first]]) {
    const catalog = new JobCatalog([aJob("a", { version: 3, previous })]);

    assert.equal(catalog.executing("a", 1)?.job, first);
    assert.equal(catalog.executing("a", 2)?.job, second);
  }
});

Deno.test("the print of a job changes with its code, its version and its changes, not with its restart", () => {
  const jobs = [
    aJob("a"),
    defineJob({ name: "a", input: anything, run: () => "other" }),
    aJob("a", { version: 2 }),
    aJob("a", { changes: { renamed: { x: "y" } } }),
    aJob("a", { changes: { removed: ["x"] } }),
    aJob("a", { changes: { added: ["x"] } }),
    aJob("a", { onDivergence: "continue" }),
    aJob("a", { recheckInput: false }),
    aJob("a", { input: z.object({}) }),
  ];

  const prints = new Set([
    ...jobs.map((job) => codePrint(job)),
    codePrint(jobs[0]!, "one"),
    codePrint(jobs[0]!, "two"),
  ]);

  assert.equal(prints.size, jobs.length + 2);
  assert.equal(codePrint(aJob("a")), codePrint(aJob("a")));
  const continuing = new JobCatalog([aJob("a")], { onDivergence: "continue" }).find("a")!.print;
  assert.equal(continuing, codePrint(aJob("a", { onDivergence: "continue" })));
  assert.equal(codePrint(jobs[0]!, "one"), codePrint(jobs[1]!, "one"));
});

Deno.test("the print of a schema is that of its JSON Schema; a library that makes none has no print", () => {
  assert.equal(schemaPrint(z.object({ a: z.string() })), schemaPrint(z.object({ a: z.string() })));
  assert.notEqual(schemaPrint(z.object({ a: z.string() })), schemaPrint(z.object({ a: z.string().optional() })));
  assert.equal(schemaPrint(z.object({ at: z.date() })), null);
  assert.equal(schemaPrint(anything), null);
});

Deno.test("the values of defaults and examples are no part of the print of a schema, or of a job", () => {
  const { random, now } = { random: () => crypto.randomUUID(), now: () => performance.now() };
  const schemas: (() => Schema)[] = [
    () => z.object({ a: z.string().default(random) }),
    () => z.object({ a: z.number().prefault(now) }),
    () => z.object({ a: z.string().catch(random) }),
    () => z.object({ a: z.string().default(random()) }),
    () => z.object({ list: z.array(z.object({ at: z.number().default(now) })) }),
    () => z.object({ a: z.object({ id: z.string() }).default(() => ({ id: random() })) }),
    () => z.union([z.record(z.string(), z.number().default(now)), z.tuple([z.string().default(random)])]),
    () => z.object({ a: z.string().meta({ examples: [random()] }) }),
    () => type({ a: ["string", "=", random] }),
  ];

  for (const make of schemas) {
    assert.notEqual(schemaPrint(make()), null);
    assert.equal(schemaPrint(make()), schemaPrint(make()));
    assert.equal(codePrint(aJob("a", { input: make() })), codePrint(aJob("a", { input: make() })));
  }
});

Deno.test("a default, a property of this name and a value with it are parts of the print of a schema", () => {
  const schemas = [
    z.object({ default: z.string() }),
    z.object({ default: z.number() }),
    z.object({ default: z.string().optional() }),
    z.object({ default: z.string().default("a") }),
    z.object({ properties: z.object({ default: z.string() }) }),
    z.object({ properties: z.object({ default: z.number() }) }),
    jsonSchema({ const: { default: 1 } }),
    jsonSchema({ const: { default: 2 } }),
    jsonSchema({ $defs: { default: { type: "string" } } }),
    jsonSchema({ $defs: { default: { type: "number" } } }),
  ];

  assert.equal(new Set(schemas.map(schemaPrint)).size, schemas.length);
});

Deno.test("a schema that is described otherwise each time, or not in JSON, has no print", () => {
  const schemas = [
    jsonSchema(() => ({ const: crypto.randomUUID() })),
    jsonSchema(() => ({ properties: { [crypto.randomUUID()]: { type: "string" } } })),
    jsonSchema({ const: 1n }),
  ];

  assert.deepEqual(schemas.map(schemaPrint), [null, null, null]);
});

function schemaPrint(input: Schema): string | null {
  return new JobCatalog([aJob("a", { input })]).find("a")!.schemaPrint;
}

function codePrint(job: Job, build?: string): string {
  return new JobCatalog([job], { build }).find("a")!.print;
}

/** A schema with this description. */
function jsonSchema(described: Record<string, unknown> | (() => Record<string, unknown>)): Schema {
  const input = () => typeof described === "function" ? described() : described;
  return { "~standard": { ...anything["~standard"], jsonSchema: { input } } };
}
