import assert from "node:assert/strict";
import type { Engine } from "../../src/engine/engine.ts";
import type { IdleResult } from "../../src/engine/lifecycle.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aJob, echo } from "../support/jobs.ts";
import { aRequest, aService } from "../support/http/http.ts";
import { defineJob, type StepContext } from "../../src/model/job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { Chance } from "../support/chance.ts";
import { FAKE_START, FakeHost } from "../support/fake_host.ts";
import { aClaimRequest } from "../support/fixtures.ts";
import { anything, forEachStore } from "../support/stores/for_each_store.ts";

const at = (ms: number) => new Date(FAKE_START + ms).toISOString();

const sleeper = aJob((step, input) => step.sleep("rest", (input as { ms: number }).ms), "sleeper");
const waiter = aJob((step) => step.wait("answer", { timeout: 5_000 }), "waiter");
const retrier = aJob((step) => step.run("call", () => fail(), { retry: { maxAttempts: 3, delay: 1_500 } }), "retrier");
const rated = defineJob({
  name: "rated",
  input: anything,
  limits: { rate: { limit: 1, period: 2_000 } },
  run: () => "done",
});
const jobs = { echo, sleeper, waiter, retrier, rated };

function fail(): never {
  throw new Error("broken");
}

forEachStore("runUntilIdle() says when something is due again", async (world) => {
  await using engine = createEngine({ ...world, jobs });
  const next = async () => (await engine.runUntilIdle()).nextDueAt;

  assert.deepEqual(await engine.runUntilIdle(), { executed: 0, nextDueAt: null });
  await engine.trigger(echo, 1);
  assert.deepEqual(await engine.runUntilIdle(), { executed: 1, nextDueAt: null });
  await engine.trigger(echo, 1, { delay: 9_000 });
  assert.equal(await next(), at(9_000));
  await engine.trigger(waiter, 1);
  assert.equal(await next(), at(5_000));
  const { id } = await engine.trigger(sleeper, { ms: 4_000 });
  assert.equal(await next(), at(4_000));
  await engine.trigger(rated, 1);
  await engine.trigger(rated, 2);
  assert.equal(await next(), at(2_000));
  await engine.trigger(retrier, 1);
  assert.equal(await next(), at(1_500));
  await engine.schedules.set("often", { job: echo, input: 1, cron: "*/1 * * * * *", overlap: "allow" });
  assert.equal(await next(), at(1_000));
  world.host.advance(1_000);
  assert.equal(await next(), at(1_500));
  await engine.schedules.delete("often");
  world.host.advance(10_000);
  assert.equal(await next(), at(12_500));
  world.host.advance(2_000);
  assert.deepEqual([await next(), (await engine.getRun(id))!.status], [null, "completed"]);
});

forEachStore("runUntilIdle() that ends early says that something may be due now", async (world) => {
  await using engine = createEngine({ ...world, jobs });
  await engine.jobs.echo.batchTrigger([{ input: 1 }, { input: 2 }, { input: 3 }]);

  const some = await engine.runUntilIdle({ maxRuns: 2 });
  const rest = await engine.runUntilIdle();

  assert.deepEqual([some, rest], [{ executed: 2, nextDueAt: at(0) }, { executed: 1, nextDueAt: null }]);
});

forEachStore("the lease of a process that was killed is due when it ends", async (world) => {
  await using engine = createEngine({ ...world, jobs });
  await engine.trigger(echo, 1);
  await world.store.claim(aClaimRequest({ jobNames: ["echo"], leaseMs: 6_000 }));

  const before = await engine.runUntilIdle();
  world.host.advance(6_000);
  const after = await engine.runUntilIdle();

  assert.deepEqual([before, after], [{ executed: 0, nextDueAt: at(6_000) }, { executed: 1, nextDueAt: null }]);
});

forEachStore("two ticks at once share the work, and do nothing twice", async ({ store, host }) => {
  const calls = new Map<number, number>();
  const count = aJob(
    (step, input) => step.run("count", () => void calls.set(input as number, (calls.get(input as number) ?? 0) + 1)),
    "count",
  );
  await using one = createEngine({ store, host, jobs: { count } });
  await using other = createEngine({ store, host, jobs: { count } });
  await one.jobs.count.batchTrigger(Array.from({ length: 40 }, (_, input) => ({ input })));

  const results = await Promise.all([one.runUntilIdle(), other.runUntilIdle()]);

  assert.equal(results.reduce((sum, { executed }) => sum + executed, 0), 40);
  assert.deepEqual([calls.size, Math.max(...calls.values())], [40, 1]);
});

/** What a run of the property does, drawn from its seed. */
async function someWork(step: StepContext, seed: number): Promise<string> {
  const chance = new Chance(seed, "work");
  const did: string[] = [];
  for (let n = 0; n < 4; n++) {
    const ms = Math.floor(chance.next() * 5_000);
    switch (Math.floor(chance.next() * 4)) {
      case 0:
        await step.sleep("rest", ms);
        break;
      case 1:
        did.push((await step.wait("answer", { timeout: ms })).outcome);
        break;
      case 2: {
        const attempts = 1 + Math.floor(chance.next() * 3);
        did.push(
          await step.run("try", ({ attempt }) => attempt < attempts ? fail() : `${attempt}`, {
            retry: { maxAttempts: 3, delay: ms + 1_001 },
          }),
        );
        break;
      }
      default:
        await Promise.race([step.sleep("short", ms), step.sleep("long", ms + 1_000)]);
    }
  }
  return did.join();
}

const END_MS = 60_000;

/** A tick that lets time pass while a run waits for it in memory. */
async function tick(engine: Engine, host: FakeHost): Promise<IdleResult> {
  let result: IdleResult | null = null;
  const ticking = engine.runUntilIdle().then((ended) => void (result = ended));
  for (let n = 0; n < 1_000 && result === null; n++) {
    await host.settle();
    if (result === null) host.advance(10);
  }
  await ticking;
  return result!;
}

/** The end states of a random history whose engine is called by `wake`. */
async function endStates(seed: number, wakesAtDue: boolean): Promise<unknown> {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const work = aJob((step, input) => someWork(step, input as number), "work");
  const limited = defineJob({
    name: "limited",
    input: anything,
    limits: { concurrency: 1, rate: { limit: 2, period: 3_000 } },
    run: (step, input) => someWork(step, input as number),
  });
  const engine = createEngine({
    store,
    host,
    jobs: { work, limited, echo },
    schedules: { often: { job: "echo", input: "slot", cron: "*/9 * * * * *", overlap: "allow", catchUp: "all" } },
  });
  const chance = new Chance(seed, "history");
  const triggers = Array.from({ length: 6 }, (_, n) => ({
    at: Math.floor(chance.next() * 10_000),
    job: chance.next() < 0.5 ? "work" : "limited",
    input: Math.floor(chance.next() * 1_000_000),
    options: {
      labels: { n: `${n}` },
      ...(chance.next() < 0.3 ? { delay: Math.floor(chance.next() * 4_000) } : {}),
      ...(chance.next() < 0.2 ? { concurrencyKey: "one" } : {}),
    },
  })).sort((one, other) => one.at - other.at);
  const elapsed = () => host.now() - FAKE_START;
  for (let wakes = 0; elapsed() < END_MS; wakes++) {
    while (triggers.length > 0 && triggers[0]!.at <= elapsed()) {
      const { job, input, options } = triggers.shift()!;
      await engine.trigger(job, input, options);
    }
    const { nextDueAt } = await tick(engine, host);
    assert.ok(wakes < 5_000, "it wakes over and over");
    const due = wakesAtDue ? nextDueAt === null ? END_MS : Date.parse(nextDueAt) - FAKE_START : elapsed() + 97;
    const until = Math.min(due, triggers[0]?.at ?? END_MS, END_MS);
    if (until > elapsed()) host.advance(until - elapsed());
  }
  const { runs } = await engine.getRuns({ limit: 1_000 });
  await engine.stop();
  await store.close();
  return runs.filter(({ jobName }) => jobName !== "echo").map(({ labels, status, output, error }) => ({
    labels,
    status,
    output,
    error,
  }))
    .sort((one, other) => one.labels.n! < other.labels.n! ? -1 : 1)
    .concat({
      labels: {},
      status: "completed",
      output: runs.filter(({ jobName }) => jobName === "echo").length,
      error: null,
    });
}

Deno.test("waking only when something is due ends in the same states as a worker that polls", async () => {
  for (let seed = 1; seed <= 20; seed++) {
    const due = await endStates(seed, true);
    const polled = await endStates(seed, false);
    assert.deepEqual(due, polled, `seed ${seed}`);
  }
});

forEachStore("POST /tick executes what is due, and answers when to call again", async (world) => {
  const calls: unknown[] = [];
  const auth = {
    authenticate: () => ({ role: "cron" }),
    onOperate: (_: unknown, access: { operation: string }) => void calls.push(access.operation),
    onTrigger: () => {},
    onRunAccess: () => {},
    scopeRuns: (_: unknown, filter: object) => filter,
  };
  const { onOperate: _, ...without } = auth;
  await using open = aService({}, world, { sleeper });
  await using guarded = aService({ auth }, world, { sleeper });
  await using closed = aService({ auth: without }, world, { sleeper });
  await open.engine.trigger("sleeper", { ms: 3_000 });

  const ticked = await open.ask("POST", "/tick");
  const again = await guarded.ask("POST", "/tick?timeout=1000");
  const refused = await closed.ask("POST", "/tick");
  const got = await open.handler.fetch(aRequest("GET", "/tick"));
  await got.body?.cancel();

  assert.deepEqual([ticked.status, ticked.body], [200, { executed: 1, nextDueAt: at(3_000) }]);
  assert.deepEqual([again.body, calls], [{ executed: 0, nextDueAt: at(3_000) }, ["tick"]]);
  assert.deepEqual([refused.status, refused.body.error], [
    403,
    "Ticks are not served: the handler has no onOperate hook",
  ]);
  assert.equal(got.status, 405);
  for (const timeout of ["999", "900001", "1e5", "-1", "x", ""]) {
    assert.equal((await open.ask("POST", `/tick?timeout=${timeout}`)).status, 400, timeout);
  }
});
