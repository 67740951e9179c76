import assert from "node:assert/strict";
import { type Fact, failedFact, stepFacts, toEvents, triggeredFact } from "../../src/model/fact.ts";
import type { StepWrite } from "../../src/model/step.ts";
import { FAKE_START } from "../support/fake_host.ts";

const RUN = { id: "run", jobName: "job", labels: {} };

/** What the first event of a fact carries, besides what all events do. */
function eventOf(fact: Fact, error: string | null = null) {
  const value = { json: '{"n":1}', error, failedStepName: null };
  const [event] = toEvents(fact, { number: 1, at: FAKE_START }, RUN, value);
  const { runId: _, jobName: _job, labels: _labels, timestamp: _timestamp, sequence: _sequence, ...rest } = event!;
  return rest;
}

Deno.test("a run:trigger event says when the run starts; null: at once", () => {
  const rest = { type: "run:trigger", input: { n: 1 }, parentRunId: null, scheduleName: null, slotAt: null, by: null };

  assert.deepEqual(eventOf(triggeredFact(1, null)), { ...rest, startAt: null });
  assert.deepEqual(eventOf(triggeredFact(1, FAKE_START)), { ...rest, startAt: new Date(FAKE_START).toISOString() });
});

Deno.test("a run:trigger event says which parent or schedule made the run", () => {
  const slotAt = new Date(FAKE_START).toISOString();

  const child = eventOf(triggeredFact(1, null, "parent"));
  const scheduled = eventOf(triggeredFact(1, null, null, { name: "nightly", slotAt }));

  assert.partialDeepStrictEqual(child, { parentRunId: "parent", scheduleName: null, slotAt: null });
  assert.partialDeepStrictEqual(scheduled, { parentRunId: null, scheduleName: "nightly", slotAt });
});

Deno.test("a run:fail event says why the run failed", () => {
  for (const failureKind of ["error", "timeout", "expired", "abandoned"] as const) {
    const event = eventOf(failedFact(1, failureKind), "broken");
    assert.deepEqual(event, { type: "run:fail", error: "broken", failedStepName: null, failureKind });
  }
});

Deno.test("facts of plain runs and ordinary failures are as short as before", () => {
  assert.deepEqual([triggeredFact(1, null), failedFact(2, "error")], [[1, "triggered"], [2, "failed"]]);
});

Deno.test("the error of an attempt that is not the last one has 2 KiB in the journal", () => {
  const result = (message: string) => ({
    status: "retrying" as const,
    delayMs: 1,
    failure: { kind: "error" as const, name: "Error", message, stack: null, cause: null },
  });
  const errorOf = (message: string) => {
    const step = { name: "send", index: 0, attempts: 1, startedAgoMs: 0, result: result(message) };
    return stepFacts(1, step as StepWrite, [], { startedAt: 0, retryAt: 1 })[0]![6] as string;
  };

  assert.equal(errorOf("short"), "short");
  assert.equal(errorOf("x".repeat(8_000)), `${"x".repeat(2_036)}… (cut)`);
  assert.ok(new TextEncoder().encode(errorOf("\u{1f600}".repeat(8_000))).length <= 2_048);
});
