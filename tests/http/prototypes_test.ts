import assert from "node:assert/strict";
import { EventReader } from "../support/http/event_reader.ts";
import { forEachStore, type StoreTest } from "../support/stores/for_each_store.ts";
import { aRequest, aService, type Service } from "../support/http/http.ts";
import { aJob } from "../support/jobs.ts";

// On Node an assignment to `object.__proto__` changes the prototype of the object, or does nothing; Deno has no such
// setter. So what is tested here can fail on Node alone: `tests/node_test.ts` runs it there.

const PROTOTYPES = [Object, Array, Function, String, Number, Boolean, Error, Promise, Map, Set, URLSearchParams]
  .map(({ prototype }) => prototype);

/** Registers a test for each store, after which every prototype has to be as it was. */
function test(name: string, body: (context: StoreTest) => Promise<void>): void {
  forEachStore(name, async (context) => {
    const before = PROTOTYPES.map(describe);

    await body(context);

    assert.deepEqual(PROTOTYPES.map(describe), before);
  });
}

function describe(prototype: object): unknown[] {
  return [Object.getPrototypeOf(prototype), Object.getOwnPropertyDescriptors(prototype)];
}

/** Data as JSON, with a word that must not be found in any object that has no such member itself. */
const TRICKS = '{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}},"list":[{"__proto__":[1]}]}';
const OTHER_TRICKS = TRICKS.replace("true", "false");

/** What a job has got, and whether it is plain data. */
function look(value: unknown): unknown {
  const { admin } = value as { admin?: unknown };
  return { value, isPlain: Object.getPrototypeOf(value) === Object.prototype, hasAdmin: admin !== undefined };
}

const LOOKED = `{"value":${TRICKS},"isPlain":true,"hasAdmin":false}`;

const keep = aJob(async (step, input) => {
  step.log.info("got", input);
  return look(await step.run("read", () => input));
}, "keep");
const ask = aJob(async (step) => {
  const result = await step.wait("review", { metadata: JSON.parse(TRICKS) });
  return result.outcome === "signal" ? look(result.payload) : null;
}, "ask");

/** Triggers `echo` with labels in JSON. */
async function triggerWith({ ask }: Service, labels: string, more = ""): Promise<{ runId: string; status: number }> {
  const { status, body } = await ask("POST", "/trigger", {
    body: `{"jobName":"echo","input":{},"labels":${labels}${more}}`,
  });
  return { runId: body.runId, status };
}

test("a member __proto__ of an input reaches the job and all readers as data", async (context) => {
  await using service = aService({}, context, { keep });

  const { body: { runId } } = await service.ask("POST", "/trigger", { body: `{"jobName":"keep","input":${TRICKS}}` });
  await service.engine.runUntilIdle();

  const { body: run } = await service.ask("GET", `/run?runId=${runId}`);
  const { body: [step] } = await service.ask("GET", `/steps?runId=${runId}`);
  await using reader = new EventReader(await service.handler.fetch(aRequest("GET", `/subscribe?runId=${runId}`)));
  await reader.ended;
  assert.equal(JSON.stringify(run.input), TRICKS);
  assert.equal(JSON.stringify(run.output), LOOKED);
  assert.equal(JSON.stringify(step.output), TRICKS);
  assert.ok(JSON.stringify(reader.events.at(-1)).includes(LOOKED));
});

test("what a body has in __proto__ are no fields of it", async (context) => {
  await using service = aService({}, context);
  const { id: runId } = await service.engine.trigger("approval", {});
  await service.engine.runUntilIdle();
  const [wait] = await service.engine.getWaits(runId);
  const options = '{"idempotencyKey":"k","concurrencyKey":"c","coalesce":"skip","labels":{"admin":"yes"}}';

  const answers = [];
  for (let n = 0; n < 2; n++) {
    const body = `{"jobName":"echo","input":{},"__proto__":${options}}`;
    answers.push((await service.ask("POST", "/trigger", { body })).body);
  }
  const body = '{"jobName":"echo","__proto__":{"input":{"n":1}}}';
  const { runId: withoutInput } = (await service.ask("POST", "/trigger", { body })).body;
  const refused = [
    await service.ask("POST", "/trigger", { body: '{"__proto__":{"jobName":"echo","input":{}}}' }),
    ...await Promise.all(
      ['{"__proto__":{"signalId":"s","payload":1}}', '{"signalId":"s","__proto__":{"payload":1}}'].map((body) =>
        service.ask("POST", `/signal?runId=${runId}&waitId=${wait!.id}`, { body })
      ),
    ),
  ];

  assert.deepEqual(answers.map(({ disposition }) => disposition), ["created", "created"]);
  assert.deepEqual((await service.engine.getRun(answers[0].runId))!.labels, {});
  assert.equal((await service.engine.getRun(withoutInput))!.payload, null);
  assert.deepEqual(refused.map(({ status }) => status), [400, 400, 400]);
});

test("a label __proto__ is kept, shown and told", async (context) => {
  const labels = '{"__proto__":"x","constructor":"y","toString":"z"}';
  await using service = aService({}, context);
  await using reader = new EventReader(await service.handler.fetch(aRequest("GET", "/runs/subscribe")));
  await context.host.settle();

  const { runId } = await triggerWith(service, labels);
  await service.engine.runUntilIdle();
  await context.host.settle();

  const { body: run } = await service.ask("GET", `/run?runId=${runId}`);
  const { body: { runs } } = await service.ask("GET", "/runs");
  assert.deepEqual([run, runs[0], ...reader.events].map((shown) => JSON.stringify(shown.labels)), [
    labels,
    labels,
    ...reader.events.map(() => labels),
  ]);
  assert.equal(reader.types.at(-1), "run:complete");
});

const FILTERS: readonly [query: string, found: string[]][] = [
  ["label.__proto__=x", ["x"]],
  ["label.__proto__=other", ["other"]],
  ["label.__proto__=none", []],
  ["label.__proto__=", []],
  ["label.__proto__=x&label.__proto__=other", []],
  ["label.__proto__=x&label.org=a", ["x"]],
  ["label.__proto__=x&label.org=b", []],
  ["label.__proto__.admin=yes", []],
  ["label.constructor=Object", []],
  ["label.constructor.prototype=yes", []],
  ["__proto__=x&label.org=b", ["none"]],
];

for (const [query, found] of FILTERS) {
  test(`?${query} finds the runs with such labels, and no others`, async (context) => {
    await using service = aService({}, context);
    await using reader = new EventReader(await service.handler.fetch(aRequest("GET", `/runs/subscribe?${query}`)));
    await context.host.settle();
    const names = new Map<string, string>();
    for (
      const [name, labels] of [
        ["x", '{"org":"a","__proto__":"x"}'],
        ["other", '{"org":"a","__proto__":"other"}'],
        ["none", '{"org":"b"}'],
      ] as const
    ) {
      names.set((await triggerWith(service, labels)).runId, name);
    }
    await context.host.settle();

    const { body } = await service.ask("GET", `/runs?${query}`);

    assert.deepEqual(body.runs.map(({ id }: { id: string }) => names.get(id)), found);
    assert.deepEqual(reader.events.map(({ runId }) => names.get(runId)), found);
  });
}

test("a scope by a label __proto__ narrows every list and stream", async (context) => {
  const scope = { labels: Object.fromEntries([["__proto__", "x"]]) };
  await using service = aService({ auth: { authenticate: () => {}, scopeRuns: () => scope } }, context);
  await using reader = new EventReader(await service.handler.fetch(aRequest("GET", "/runs/subscribe?label.org=a")));
  await context.host.settle();
  const { runId } = await triggerWith(service, '{"org":"a","__proto__":"x"}');
  await triggerWith(service, '{"org":"a","__proto__":"other"}');
  await triggerWith(service, '{"org":"a"}');
  await context.host.settle();

  const lists = await Promise.all(
    ["", "label.org=a", "label.__proto__=x", "label.__proto__=other"].map((query) =>
      service.ask("GET", `/runs?${query}`)
    ),
  );

  const found = lists.map(({ body }) => body.runs.map(({ id }: { id: string }) => id));
  assert.deepEqual(found, [[runId], [runId], [runId], []]);
  assert.deepEqual(reader.events.map((event) => event.runId), [runId]);
});

test("keys named __proto__ are keys like any other", async (context) => {
  await using service = aService({}, context);
  const keys = ["__proto__", "constructor", "__proto__"];

  const dispositions: Record<string, string[]> = { idempotencyKey: [], concurrencyKey: [] };
  for (const [field, told] of Object.entries(dispositions)) {
    for (const key of keys) {
      const coalesce = field === "concurrencyKey" ? { coalesce: "skip" } : {};
      const body = { jobName: "echo", input: {}, [field]: key, ...coalesce };
      told.push((await service.ask("POST", "/trigger", { body })).body.disposition);
    }
  }

  assert.deepEqual(dispositions, {
    idempotencyKey: ["created", "created", "idempotent"],
    concurrencyKey: ["created", "created", "coalesced"],
  });
});

test("a member __proto__ of metadata and of a payload is data, and tells payloads apart", async (context) => {
  await using service = aService({}, context, { ask });
  const { id: runId } = await service.engine.trigger("ask", {});
  await service.engine.runUntilIdle();
  const { body: [wait] } = await service.ask("GET", `/waits?runId=${runId}`);
  const signal = (payload: string) =>
    service.ask("POST", `/signal?runId=${runId}&waitId=${wait.id}`, { body: `{"signalId":"s","payload":${payload}}` });

  const first = await signal(TRICKS);
  const again = await signal(TRICKS);
  const other = await signal(OTHER_TRICKS);
  await service.engine.runUntilIdle();

  const { body: run } = await service.ask("GET", `/run?runId=${runId}`);
  assert.equal(JSON.stringify(wait.metadata), TRICKS);
  assert.deepEqual([first.body.disposition, again.body.disposition, other.status], ["accepted", "duplicate", 409]);
  assert.equal(JSON.stringify(first.body.wait.payload), TRICKS);
  assert.equal(JSON.stringify(run.output), LOOKED);
});
