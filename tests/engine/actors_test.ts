import assert from "node:assert/strict";
import { ValidationError } from "../../src/model/error.ts";
import type { RunEvent } from "../../src/model/event.ts";
import { actorOf, encodeOrigin, traceOf, withActor } from "../../src/model/origin.ts";
import { aJob, echo, fail } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { forEachStore } from "../support/stores/for_each_store.ts";

const approval = aJob((step) => step.wait("review"), "approval");
const jobs = { echo, fail, approval };

/** The events that an engine publishes, as pairs of their type and `by`. */
function actorsIn(engine: ReturnType<typeof createEngine>): [string, unknown][] {
  const seen: [string, unknown][] = [];
  engine.on("*", (event) => {
    if ("by" in event) seen.push([event.type, event.by]);
  });
  return seen;
}

forEachStore("by is recorded with what it tells, and published with the event", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs });
  const seen = actorsIn(engine);

  const waiting = await engine.trigger(approval, {}, { by: "ada" });
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(waiting.id);
  const { wait: answered } = await engine.signal(wait!.id, { signalId: "s", payload: 1 }, { by: "bob" });
  const [batched] = await engine.jobs.echo.batchTrigger([{ input: 1, by: "cy" }]);
  const cancelled = await engine.cancel(batched!.id, { by: "dan" });
  const retried = await engine.retrigger(batched!.id, { by: "eve" });
  await engine.deleteRun(batched!.id, { by: "fay" });

  assert.equal(waiting.triggeredBy, "ada");
  assert.equal(answered.signalledBy, "bob");
  assert.deepEqual([cancelled.triggeredBy, cancelled.cancelledBy, retried.triggeredBy], ["cy", "dan", "eve"]);
  assert.deepEqual(seen, [
    ["run:trigger", "ada"],
    ["run:trigger", "cy"],
    ["run:cancel", "dan"],
    ["run:trigger", "eve"],
    ["run:retry", "eve"],
    ["run:delete", "fay"],
  ]);
  const { triggeredBy, rows } = await engine.getTimeline(waiting.id);
  assert.deepEqual([triggeredBy, rows.find(({ kind }) => kind === "wait")?.signalledBy], ["ada", "bob"]);
});

forEachStore("bulk operations record by with each run", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs });
  const runs = await engine.jobs.echo.batchTrigger([{ input: 1 }, { input: 2 }]);
  const runIds = runs.map(({ id }) => id);
  const seen = actorsIn(engine);

  await engine.cancelRuns({ runIds }, { by: "ada" });
  await engine.retriggerRuns({ runIds }, { by: "bob" });
  await engine.deleteRuns({ runIds }, { by: "cy" });

  const { runs: retries } = await engine.getRuns();
  assert.deepEqual(retries.map(({ triggeredBy }) => triggeredBy), ["bob", "bob"]);
  assert.deepEqual(seen.map(([type, by]) => `${type} ${by}`).sort(), [
    "run:cancel ada",
    "run:cancel ada",
    "run:delete cy",
    "run:delete cy",
    "run:retry bob",
    "run:retry bob",
    "run:trigger bob",
    "run:trigger bob",
  ]);
});

forEachStore("who follows a run from another process sees who acted", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs });
  const { id } = await engine.trigger(echo, 1, { by: "ada" });
  await using other = createEngine({ store, host, jobs });
  const events: RunEvent[] = [];
  const reading = (async () => {
    for await (const event of other.subscribe(id)) events.push(event);
  })();
  await host.settle();

  await engine.cancel(id, { by: "bob" });
  for (let i = 0; i < 20; i++) {
    host.advance(100);
    await host.settle();
  }
  await reading;

  assert.equal(events.findLast(({ type }) => type === "run:cancel")?.type, "run:cancel");
  assert.partialDeepStrictEqual(events.at(-1), { type: "run:cancel", by: "bob" });
});

forEachStore("a pause of a schedule says who, and a run of it has no actor but that of its trigger", async (world) => {
  await using engine = createEngine({ ...world, jobs });
  await engine.schedules.set("nightly", { job: echo, input: 1, cron: "0 3 * * *" });

  const paused = await engine.schedules.pause("nightly", { by: "ada" });
  const again = await engine.schedules.pause("nightly", { by: "bob" });
  const resumed = await engine.schedules.resume("nightly", { by: "bob" });
  const triggered = await engine.schedules.trigger("nightly", { by: "cy" });

  assert.deepEqual([paused.pausedBy, again.pausedBy, resumed.pausedBy], ["ada", "ada", null]);
  assert.deepEqual([triggered.triggeredBy, triggered.scheduleName], ["cy", "nightly"]);
});

forEachStore("by that is no name is refused, and nothing is done", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs });
  const { id } = await engine.trigger(echo, 1);

  for (const by of ["", "a\nb", "\u0000", "\ud800", "x".repeat(256), 7 as unknown as string]) {
    const calls = [
      () => engine.trigger(echo, 1, { by }),
      () => engine.cancel(id, { by }),
      () => engine.cancelRuns({ runIds: [id] }, { by }),
      () => engine.pauseJob("echo", { by }),
    ];
    for (const call of calls) await assert.rejects(call, ValidationError);
  }
  await assert.rejects(engine.cancel(id, { who: "ada" } as object), TypeError);
  const { runs, total } = await engine.getRuns();
  assert.deepEqual([total, runs[0]?.status], [1, "pending"]);
});

Deno.test("an origin keeps trace and actor apart", () => {
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const traces = [null, { traceparent, tracestate: null }, { traceparent, tracestate: "a=b c=\n" }, {
    traceparent,
    tracestate: "a=b c",
  }];

  for (const trace of traces) {
    for (const by of [null, "ada", "a b", "00-x"]) {
      const text = encodeOrigin(trace, by);
      const kept = trace?.tracestate?.includes("\n") ? { traceparent, tracestate: null } : trace;
      assert.deepEqual([traceOf(text), actorOf(text)], [kept, by]);
    }
  }
  assert.equal(encodeOrigin({ traceparent: "x", tracestate: null }, null), null);
  assert.equal(actorOf(withActor("id", null)), null);
});
