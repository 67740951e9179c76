import assert from "node:assert/strict";
import { PendingReports } from "../../src/execution/reports.ts";
import { toFact } from "../../src/model/fact.ts";
import { latestProgress, type Report } from "../../src/model/execution_report.ts";

function someReports() {
  const reports = new PendingReports();
  const progress = (current: number) => reports.add({ kind: "progress", progress: { current } }, 0);
  const log = (message: string) => reports.add({ kind: "log", stepName: null, level: "info", message, data: null }, 0);
  return { reports, progress, log };
}

function describe(report: Report): string {
  if (report.kind === "progress") return `progress ${report.progress.current}`;
  return report.kind === "log" ? report.message.slice(0, 40) : report.stepName;
}

Deno.test("PendingReports sends what was not kept, numbered in its order", () => {
  const { reports, progress, log } = someReports();
  progress(1);
  log("one");
  reports.add({ kind: "start", stepName: "work", stepIndex: 0, attempt: 1 }, 0);

  const sent = reports.send();

  assert.deepEqual(sent.map(describe), ["progress 1", "one", "work"]);
  assert.deepEqual(sent.map(({ no }) => no), [1, 2, 3]);
});

Deno.test("PendingReports sends again what a write did not keep, with the same numbers", () => {
  const { reports, progress } = someReports();
  progress(1);
  const first = reports.send();
  progress(2);

  const second = reports.send();
  reports.noteKept(first);
  const third = reports.send();
  reports.noteKept(second);

  assert.deepEqual([first, second, third].map((sent) => sent.map(({ no }) => no)), [[1], [1, 2], [2]]);
  assert.equal(reports.isEmpty, true);
});

Deno.test("PendingReports keeps 128 reports of progress, then the latest", () => {
  const { reports, progress } = someReports();

  for (let n = 1; n <= 10_000; n++) progress(n);

  const sent = reports.send();
  assert.equal(sent.length, 128);
  assert.deepEqual([sent[0], sent[126], sent[127]].map((report) => describe(report!)), [
    "progress 1",
    "progress 127",
    "progress 10000",
  ]);
  assert.deepEqual(latestProgress(sent), { current: 10_000 });
});

Deno.test("PendingReports leaves alone what a write that is under way has", () => {
  const { reports, progress } = someReports();
  for (let n = 1; n <= 128; n++) progress(n);
  const sent = [...reports.send()];

  for (const n of [129, 130]) progress(n);
  const after = reports.send();

  assert.deepEqual(after.slice(0, 128), sent);
  assert.deepEqual(after.slice(128).map(describe), ["progress 130"]);
});

Deno.test("PendingReports keeps 256 KiB of log lines, and one that says how many were left out", () => {
  const { reports, progress, log } = someReports();

  for (let n = 0; n < 1_000; n++) {
    log(`${n} ${"x".repeat(8_000)}`);
    progress(n);
  }

  const lines = reports.send().filter(({ kind }) => kind === "log");
  assert.ok(lines.length >= 32 && lines.length <= 34, `${lines.length} lines`);
  const left = 1_000 - (lines.length - 1);
  assert.equal(describe(lines.at(-1)!), `Log lines were left out of the event str`);
  assert.deepEqual(lines.at(-1)!.kind === "log" && lines.at(-1), { ...lines.at(-1), data: { leftOut: left } });
});

Deno.test("PendingReports takes log lines again when earlier ones were kept, while others wait", () => {
  const { reports, log } = someReports();
  for (let n = 0; n < 100; n++) log("x".repeat(8_000));
  const first = reports.send();
  log("y".repeat(8_000)); // is left out

  reports.noteKept(first);
  log("z");

  const kinds = reports.send().map((report) => describe(report)[0]);
  assert.deepEqual(kinds, ["L", "z"]);
});

Deno.test("PendingReports keeps 256 KiB of short lines, too, and takes no longer for each of many", () => {
  const { reports, log } = someReports();
  const took = Array.from({ length: 20 }, () => {
    const startedAt = performance.now();
    for (let n = 0; n < 5_000; n++) log("x");
    return performance.now() - startedAt;
  });

  const sent = reports.send();
  // The shortest times: the machine may be busy with something else.
  assert.ok(Math.min(...took.slice(-5)) < 10 * Math.min(...took.slice(0, 5)) + 5, `${took} ms`);
  assert.ok(JSON.stringify(sent.map((report) => toFact(1_000, report))).length < 300_000, `${sent.length} lines`);
  assert.deepEqual(sent.at(-1)!.kind === "log" && sent.at(-1)!.no, 100_000);
});
