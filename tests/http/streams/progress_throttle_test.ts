import assert from "node:assert/strict";
import type { RunEvent, RunHappening } from "../../../src/model/event.ts";
import { ProgressThrottle } from "../../../src/http/streams/progress_throttle.ts";
import { FakeHost } from "../../support/fake_host.ts";

const STEP = { stepName: "read", stepIndex: 0 };

function anEvent(happening: RunHappening, runId = "run-a"): RunEvent {
  return { ...happening, runId, jobName: "job", labels: {}, timestamp: "", sequence: 0 };
}

function aProgress(current: number, runId?: string): RunEvent {
  return anEvent({ type: "run:progress", progress: { current } }, runId);
}

/** A throttle of 100 ms, and what it has told: progress as numbers, other events by their type. */
function aThrottle(restMs = 100) {
  const host = new FakeHost();
  const told: (number | string)[] = [];
  const throttle = new ProgressThrottle(
    restMs,
    host,
    (event) => told.push(event.type === "run:progress" ? event.progress.current : event.type),
  );
  return { host, told, throttle };
}

Deno.test("ProgressThrottle tells the first progress at once, then the latest after its time", () => {
  const { host, told, throttle } = aThrottle();

  for (const n of [1, 2, 3]) throttle.publish(aProgress(n));
  const atOnce = [...told];
  host.advance(99);
  const before = [...told];
  host.advance(1);

  assert.deepEqual([atOnce, before, told], [[1], [1], [1, 3]]);
});

Deno.test("ProgressThrottle rests again after what it had held back", () => {
  const { host, told, throttle } = aThrottle();
  for (const n of [1, 2]) throttle.publish(aProgress(n));
  host.advance(100);

  throttle.publish(aProgress(3));
  const resting = [...told];
  host.advance(100);

  assert.deepEqual([resting, told], [[1, 2], [1, 2, 3]]);
});

Deno.test("ProgressThrottle tells progress at once when nothing came for a while", () => {
  const { host, told, throttle } = aThrottle();
  throttle.publish(aProgress(1));
  host.advance(100);

  throttle.publish(aProgress(2));

  assert.deepEqual(told, [1, 2]);
});

Deno.test("ProgressThrottle tells what it holds right before the run's next run: event, and then rests no more", () => {
  const { host, told, throttle } = aThrottle();
  for (const n of [1, 2, 3]) throttle.publish(aProgress(n));

  throttle.publish(anEvent({ type: "run:complete", output: null, duration: 0 }));
  throttle.publish(aProgress(4));
  host.advance(1_000);

  assert.deepEqual(told, [1, 3, "run:complete", 4]);
});

Deno.test("ProgressThrottle tells steps and logs at once, and what it holds later", () => {
  const { host, told, throttle } = aThrottle();
  for (const n of [1, 2]) throttle.publish(aProgress(n));

  throttle.publish(anEvent({ type: "step:start", ...STEP, attempt: 1 }));
  throttle.publish(anEvent({ type: "log:write", stepName: null, level: "info", message: "hello", data: null }));
  throttle.publish(anEvent({ type: "step:complete", ...STEP, output: null, duration: 0 }));
  host.advance(100);

  assert.deepEqual(told, [1, "step:start", "log:write", "step:complete", 2]);
});

Deno.test("ProgressThrottle holds back each run by itself", () => {
  const { host, told, throttle } = aThrottle();
  throttle.publish(aProgress(1, "run-a"));
  throttle.publish(aProgress(2, "run-a"));
  host.advance(50);

  throttle.publish(aProgress(11, "run-b"));
  throttle.publish(aProgress(12, "run-b"));
  throttle.publish(anEvent({ type: "run:cancel", by: null }, "run-c"));
  host.advance(50);
  const after100 = [...told];
  host.advance(50);

  assert.deepEqual([after100, told], [[1, 11, "run:cancel", 2], [1, 11, "run:cancel", 2, 12]]);
});

Deno.test("ProgressThrottle of 0 ms holds nothing back", () => {
  const { told, throttle } = aThrottle(0);

  for (const n of [1, 2, 3]) throttle.publish(aProgress(n));

  assert.deepEqual(told, [1, 2, 3]);
});

Deno.test("ProgressThrottle tells nothing once it was stopped", () => {
  const { host, told, throttle } = aThrottle();
  for (const runId of ["run-a", "run-b"]) for (const n of [1, 2]) throttle.publish(aProgress(n, runId));

  throttle.stop();
  host.advance(1_000);

  assert.deepEqual(told, [1, 1]);
});
