import assert from "node:assert/strict";
import { aFailure } from "../support/fixtures.ts";
import { toClientRun } from "../../src/model/client_run.ts";
import { type Run, RUN_STATUSES } from "../../src/model/run.ts";

function aStoredRun(overrides: Partial<Run> = {}): Run {
  return {
    id: "0190-id",
    jobName: "job",
    status: "pending",
    input: { n: 1 },
    payload: { n: 1 },
    output: null,
    error: null,
    failedStepName: null,
    failure: null,
    progress: null,
    labels: { a: "b" },
    idempotencyKey: "secret",
    concurrencyKey: "secret",
    leaseOwner: "secret",
    leaseExpiresAt: "2026-01-01T00:00:30.000Z",
    leaseGeneration: 7,
    triggeredBy: null,
    cancelledBy: null,
    createdAt: "2026-01-01T00:00:00.000Z",
    updatedAt: "2026-01-01T00:00:01.000Z",
    startedAt: null,
    completedAt: null,
    startAt: null,
    priority: 0,
    fairnessKey: null,
    startBy: null,
    finishBy: null,
    failureKind: null,
    parentRunId: null,
    scheduleName: null,
    slotAt: null,
    version: 1,
    held: null,
    endOf: null,
    endRunId: null,
    retriggerOf: null,
    retriggeredAs: null,
    completedAs: null,
    ...overrides,
  };
}

Deno.test("toClientRun() leaves out what is internal, and what is not known", () => {
  const client = toClientRun(aStoredRun());

  assert.deepEqual(client, {
    id: "0190-id",
    jobName: "job",
    status: "pending",
    input: { n: 1 },
    output: null,
    labels: { a: "b" },
    createdAt: "2026-01-01T00:00:00.000Z",
    isTerminal: false,
    isActive: true,
    isWaiting: false,
  });
});

Deno.test("toClientRun() shows all that is known of a run that has ended", () => {
  const client = toClientRun(aStoredRun({
    status: "completed",
    output: { rows: 3 },
    progress: { current: 1, total: 2, message: "half" },
    startedAt: "2026-01-01T00:00:00.500Z",
    completedAt: "2026-01-01T00:00:01.000Z",
  }));

  assert.deepEqual(client, {
    id: "0190-id",
    jobName: "job",
    status: "completed",
    input: { n: 1 },
    output: { rows: 3 },
    progress: { current: 1, total: 2, message: "half" },
    labels: { a: "b" },
    createdAt: "2026-01-01T00:00:00.000Z",
    startedAt: "2026-01-01T00:00:00.500Z",
    completedAt: "2026-01-01T00:00:01.000Z",
    isTerminal: true,
    isActive: false,
    isWaiting: false,
  });
});

Deno.test("toClientRun() shows in which step a run failed, and no stack", () => {
  const client = toClientRun(aStoredRun({
    status: "failed",
    error: "no",
    failedStepName: "read",
    failure: aFailure({ stack: "Error: no\n    at secret.ts:1:1" }),
  }));

  assert.deepEqual([client.error, client.failedStepName], ["no", "read"]);
  assert.ok(!JSON.stringify(client).includes("secret"));
});

Deno.test("toClientRun() shows of which run it is a retry, and its newest retry", () => {
  const client = toClientRun(aStoredRun({ retriggerOf: "old", retriggeredAs: "new" }));

  assert.deepEqual([client.retriggerOf, client.retriggeredAs], ["old", "new"]);
});

Deno.test("toClientRun() shows an error, even an empty one, and falsy values", () => {
  const client = toClientRun(aStoredRun({ status: "failed", error: "", payload: 0, output: false }));

  assert.deepEqual([client.error, client.input, client.output], ["", 0, false]);
  assert.deepEqual(Object.keys(toClientRun(aStoredRun())).includes("error"), false);
});

Deno.test("toClientRun() says of every status whether it is terminal, active or waiting", () => {
  const flags = RUN_STATUSES.map((status) => {
    const { isTerminal, isActive, isWaiting } = toClientRun(aStoredRun({ status }));
    return [status, isTerminal, isActive, isWaiting];
  });

  assert.deepEqual(flags, [
    ["pending", false, true, false],
    ["leased", false, true, false],
    ["running", false, true, false],
    ["waiting", false, false, true],
    ["completed", true, false, false],
    ["failed", true, false, false],
    ["cancelled", true, false, false],
  ]);
});
