import type { ClientRecords } from "./client_records.ts";
import type { Expected } from "./copy_examination.ts";
import type { History } from "./history.ts";

/**
 * What workers and clients were told of until now.
 *
 * @param recent Runs that were checked a while ago, and have to be as they were.
 */
export function expectedOf(history: History, records: ClientRecords, recent: readonly string[]): Expected {
  const expected: Expected = { runs: [], steps: [], signals: [], endings: [], hashes: [] };
  for (const [run, facts] of history.open) {
    for (const fact of facts) {
      if (fact.is === "ack" && fact.isLast) expected.steps.push([run, fact.step, fact.value]);
      else if (fact.is === "over") expected.endings.push([run, fact.status]);
    }
  }
  for (const [run, { job, isCancelled, signals }] of records.runs) {
    if (history.settled.has(run)) continue;
    if (job !== null) expected.runs.push(run);
    if (isCancelled) expected.endings.push([run, "cancelled"]);
    for (const { waitId, value } of signals.values()) expected.signals.push([run, waitId, value]);
  }
  for (const run of recent) expected.hashes.push([run, history.settled.get(run)!.hash]);
  return withoutDeleted(expected, records);
}

/** The same without runs that somebody has asked to delete. */
export function withoutDeleted(expected: Expected, records: ClientRecords): Expected {
  const isKept = (run: string) => records.of(run).deletesAsked === 0;
  return {
    runs: expected.runs.filter(isKept),
    steps: expected.steps.filter(([run]) => isKept(run)),
    signals: expected.signals.filter(([run]) => isKept(run)),
    endings: expected.endings.filter(([run]) => isKept(run)),
    hashes: expected.hashes.filter(([run]) => isKept(run)),
  };
}
