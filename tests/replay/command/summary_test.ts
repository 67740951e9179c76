import assert from "node:assert/strict";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Changes } from "../../../src/model/job/job_changes.ts";
import { summarize } from "../../../src/replay/command/summary.ts";
import { showChanges } from "../../../src/replay/suggest_changes.ts";
import { type ReplayReport, toReport } from "../../../src/replay/replay_report.ts";
import { anything } from "../../support/stores/for_each_store.ts";

function aJob(changes: Changes = {}) {
  return defineJob({ name: "checkout", input: anything, changes, run: () => {} });
}

function aReport(fields: Partial<ReplayReport> = {}): ReplayReport {
  return toReport({
    runId: "run-1",
    jobName: "checkout",
    version: 1,
    status: "waiting",
    outcome: "goes on",
    code: null,
    message: "",
    isNew: null,
    unasked: [],
    issues: [],
    suggestion: null,
    neededChanges: { renamed: {}, removed: [], added: [] },
    ...fields,
  });
}

const early = {
  outcome: "held",
  code: "ended_early",
  unasked: [{ kind: "wait", name: "ok?" }, { kind: "step", name: "ship" }],
  message: 'Held: the job threw TypeError: no before it asked for recorded wait "ok?", step "ship"',
} as const;
const isNew = {
  outcome: "held",
  code: "diverged",
  isNew: { kind: "step", name: "pay" },
  unasked: [{ kind: "wait", name: "ok?" }, { kind: "step", name: "charge" }],
  suggestion: { renamed: { charge: "pay" } },
} as const;

Deno.test("summarize() groups the runs that do not go on, the largest group first", () => {
  const reports = [
    aReport(),
    aReport({ ...early, runId: "early" }),
    aReport({ ...isNew, runId: "new" }),
    aReport({ ...isNew, unasked: [...isNew.unasked, { kind: "step", name: "ship" }] }),
    aReport({ outcome: "fails", message: "The job throws Error: no", status: "completed" }),
    aReport({ outcome: "ends otherwise", status: "completed" }),
  ];

  const text = summarize(aJob({ added: ["check"] }), reports);

  assert.equal(
    text,
    [
      'checkout  6 runs  1 goes on  1 ends otherwise  2 would be held:  step "pay" is new while step "charge" is unasked',
      '                                                                 changes: { renamed: { "charge": "pay" } }',
      "                                                                 for example run new",
      '                                               1 would be held:  the job threw TypeError: no before it asked for wait "ok?"',
      "                                                                 for example run early",
      "                                               1 would fail:  The job throws Error: no",
      "                                                              for example run run-1",
    ].join("\n"),
  );
});

Deno.test("summarize() says of a job without runs that there are none", () => {
  assert.equal(summarize(aJob(), []), "checkout  0 runs");
});

Deno.test("summarize() lists what no open run needs: ended runs are not open", () => {
  const changes = { renamed: { charge: "pay", mail: "send" }, removed: ["fax"], added: ["check"] };
  const reports = [
    aReport({ neededChanges: { renamed: { charge: "pay" }, removed: [], added: ["check"] } }),
    aReport({ neededChanges: { renamed: {}, removed: ["fax"], added: [] }, status: "completed" }),
  ];

  assert.equal(
    summarize(aJob(changes), reports),
    "checkout  2 runs  2 go on\n" +
      '  no open run needs this any more:  changes: { renamed: { "mail": "send" }, removed: ["fax"] }',
  );
});

Deno.test("showChanges() writes what a definition can say", () => {
  assert.equal(showChanges({ renamed: { a: "b" }, added: ["c"] }), '{ renamed: { "a": "b" }, added: ["c"] }');
  assert.equal(showChanges({ removed: ['a "b"', "c"] }), '{ removed: ["a \\"b\\"", "c"] }');
});
