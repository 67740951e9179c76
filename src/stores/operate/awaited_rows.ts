import { failureText } from "../../model/failure.ts";
import type { Receive } from "../../model/message.ts";
import type { RunStatus } from "../../model/run.ts";
import type { JsonText } from "../../values/json.ts";
import { jobNameOf } from "../queue_name.ts";
import { toFailure } from "../rows.ts";
import type { BlockerFacts } from "./blocker_facts.ts";

/** Something that a run waits for, as both SQL stores read it. */
export type AwaitedRow =
  | { kind: "wait"; id: string; name: string; at: number | null }
  | { kind: "receive"; name: string; receive: JsonText; since: number; at: number | null; others: number }
  | { kind: "sleep"; name: string; at: number }
  | { kind: "children"; open: number; child: { id: string; job: string; status: RunStatus } | null }
  | { kind: "retry"; name: string; at: number; attempts: number; failure: JsonText };

/** Such a row as a fact; none if the child has ended. */
export function toAwaited(row: AwaitedRow): BlockerFacts["awaited"] {
  switch (row.kind) {
    case "wait":
      return [{ kind: "signal", waitId: row.id, name: row.name, deadlineAt: row.at }];
    case "receive": {
      const { names }: Receive = JSON.parse(row.receive);
      return [{ kind: "message", name: row.name, names, since: row.since, deadlineAt: row.at, others: row.others }];
    }
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
