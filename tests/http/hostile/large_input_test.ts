import assert from "node:assert/strict";
import { forEachStore, pass } from "../../support/stores/for_each_store.ts";
import { aGuardedService, assertWell, provoke } from "../../support/http/hostile.ts";
import { aService, aWaitingRun } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";

const LARGE: Record<string, string> = {
  "half a million items": `{"a":[${"0,".repeat(500_000)}0]}`,
  "ninety thousand keys": JSON.stringify(
    Object.fromEntries(Array.from({ length: 90_000 }, (_, n) => [n.toString(36), 1])),
  ),
  "a text of controls": JSON.stringify({ a: "\u0001x".repeat(125_000) }),
};

for (const [what, value] of Object.entries(LARGE)) {
  Deno.test(`an input and a payload of ${what} pass all hooks, and can be read`, async () => {
    await using service = aGuardedService();
    const { query } = await aWaitingRun(service);

    const triggered = await provoke(service, "POST", "/trigger", { body: `{"jobName":"echo","input":${value}}` });
    const signalled = await provoke(service, "POST", `/signal?${query}`, {
      body: `{"signalId":"s","payload":${value}}`,
    });
    await service.engine.runUntilIdle();
    const run = await provoke(service, "GET", `/run?runId=${triggered.body.runId}`);

    assert.deepEqual([triggered.status, signalled.status, run.status], [200, 200, 200]);
    assert.equal(JSON.stringify(run.body.output), value);
    assert.deepEqual(service.heard, []);
  });
}

Deno.test("POST /trigger and POST /signal refuse texts of a megabyte wherever a name or a key belongs", async () => {
  await using service = aService();
  const { query } = await aWaitingRun(service);
  const texts = ["a".repeat(1_000_000), `${"a ".repeat(499_000)}!`];
  const fields = (text: string): Record<string, unknown>[] => [
    { jobName: text },
    { idempotencyKey: text },
    { concurrencyKey: text },
    { coalesce: text },
    { labels: { [text]: "v" } },
    { labels: { k: text } },
    { labels: text },
  ];

  const answers = [];
  for (const text of texts) {
    for (const field of fields(text)) {
      answers.push(await provoke(service, "POST", "/trigger", { body: { jobName: "echo", input: {}, ...field } }));
    }
    answers.push(await provoke(service, "POST", `/signal?${query}`, { body: { signalId: text, payload: 1 } }));
    answers.push(await provoke(service, "GET", `/runs?jobName=${text}`));
    answers.push(await provoke(service, "GET", `/runs?label.${text}=${text}`));
    answers.push(await provoke(service, "GET", `/runs?limit=${text}&status=${text}`));
  }

  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [400]);
  await assertWell(service);
});

forEachStore(
  "GET /runs answers the last page that can be asked for, and refuses forty thousand job names",
  async (context) => {
    await using service = aService({}, context);
    await service.engine.trigger("echo", {});
    const names = Array.from({ length: 40_000 }, (_, n) => `jobName=job-${n}`).join("&");

    const last = await provoke(service, "GET", "/runs?offset=1000000");
    const many = await provoke(service, "GET", `/runs?${names}&jobName=echo`);

    assert.deepEqual(last.body, { runs: [], total: 1, hasMore: false });
    assert.deepEqual([many.status, many.body.code], [400, "invalid_request"]);
  },
);

forEachStore("a job of two thousand steps and as many log lines ends, and can be shown", async (context) => {
  const long = aJob(async (step) => {
    for (let n = 0; n < 2_000; n++) {
      step.log.info(`line ${n}`);
      await step.run("again", () => n);
    }
  }, "long");
  await using service = aService({}, context, { long });
  const { id } = await service.engine.trigger("long", {});

  await service.engine.runUntilIdle();
  const { status, body } = await provoke(service, "GET", `/steps?runId=${id}`);

  assert.deepEqual([status, body.length, body.at(-1).name], [200, 2_000, "again#2000"]);
});

forEachStore("a flood of triggers is stored whole, and costs no run its lease", async (context) => {
  const { host } = context;
  const begun = Promise.withResolvers<void>();
  const ending = Promise.withResolvers<void>();
  const slow = aJob(() => {
    begun.resolve();
    return ending.promise;
  }, "slow");
  await using service = aService({}, context, { slow });
  const { id } = await service.engine.trigger("slow", {});
  await service.engine.start();
  await begun.promise;

  const flood = Promise.all(
    Array.from(
      { length: 1_000 },
      (_, n) => service.ask("POST", "/trigger", { body: { jobName: "echo", input: { n } } }),
    ),
  );
  await pass(host, 60_000, 5_000);
  const answers = await flood;
  ending.resolve();
  await host.settle();
  await service.engine.stop();

  const run = (await service.engine.getRun(id))!;
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  assert.equal(new Set(answers.map(({ body }) => body.runId)).size, 1_000);
  assert.equal((await service.engine.getRuns({ limit: 0 })).total, 1_001);
  assert.deepEqual([run.status, run.leaseGeneration], ["completed", 1]);
});
