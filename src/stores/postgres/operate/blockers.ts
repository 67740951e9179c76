import { failureText } from "../../../failure.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { JsonText } from "../../../values/json.ts";
import type { RunStatus } from "../../../run.ts";
import type { BlockerFacts, WorkerFacts } from "../../operate/blocker_facts.ts";
import { isAloneQueue, jobNameOf } from "../../queue_name.ts";
import { toFailure } from "../../rows.ts";
import { parseWorkerDetails, toNamedWorker } from "../../worker_details.ts";
import { type RunRow, toRunText } from "../rows.ts";

/** What `fn.get_blockers()` returns. */
export interface BlockersAnswer extends Omit<BlockerFacts, "run" | "awaited" | "paused" | "workers"> {
  run: RunRow;
  awaited: AwaitedRow[];
  paused: { job: string; paused_at: number; paused_by: string | null; note: string | null }[];
  workers:
    (Pick<WorkerFacts, "id" | "lastSeenAt" | "leaseMs" | "queues" | "limits" | "leases"> & { details: JsonText })[];
}

/** Something that a run waits for. */
type AwaitedRow =
  | { kind: "wait"; id: string; name: string; at: number | null }
  | { kind: "sleep"; name: string; at: number }
  | { kind: "children"; open: number; child: { id: string; job: string; status: RunStatus } | null }
  | { kind: "retry"; name: string; at: number; attempts: number; failure: JsonText };

/** What `fn.get_blockers()` returns, as facts. */
export function toBlockerFacts({ run, awaited, paused, workers, ...facts }: BlockersAnswer): BlockerFacts {
  return {
    ...facts,
    run: toRunText(run),
    awaited: awaited.flatMap(toAwaited),
    paused: paused.map(({ job, paused_at, paused_by, note }) => ({
      jobName: job,
      since: isoTime(paused_at),
      by: paused_by,
      note,
    })),
    workers: workers.map(({ details, queues, ...worker }) => ({
      ...worker,
      queues: queues.filter((queue) => !isAloneQueue(queue)),
      ...toNamedWorker(parseWorkerDetails(details)),
    })),
  };
}

function toAwaited(row: AwaitedRow): BlockerFacts["awaited"] {
  switch (row.kind) {
    case "wait":
      return [{ kind: "signal", waitId: row.id, name: row.name, deadlineAt: row.at }];
    case "sleep":
      return [{ kind: "sleep", name: row.name, until: row.at }];
    case "children": {
      if (row.child === null) return [];
      const { id: runId, job, status } = row.child;
      return [{ kind: "child", child: { runId, jobName: jobNameOf(job), status }, open: row.open }];
    }
    case "retry": {
      const { name: stepName, attempts, at } = row;
      const error = failureText(toFailure(row.failure)!); // a step between two attempts has failed
      return [{ kind: "retry", stepName, attempts, error, at }];
    }
  }
}
