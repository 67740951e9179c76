import type {
  ChildHistory,
  ExportedHistory,
  HistoryFailure,
  HistoryName,
  HistoryRecord,
  PauseHistory,
  ReceiveHistory,
  StepHistory,
} from "../model/exported_history.ts";
import type { Failure } from "../model/failure.ts";
import type { Json, JsonText } from "../values/json.ts";
import type { StepRecord } from "../model/step.ts";
import type { Claim } from "../store/claim.ts";
import type { ChildResult, PauseRecord } from "../model/wait.ts";

/** The claim of a worker for a run with this history. No claim is made: nobody else executes the run. */
export function claimOfHistory(history: ExportedHistory): Claim {
  const { runId, jobName, version, schemaPrint, slotAt, slot, copied, records } = history;
  const steps = records.filter((record) => record.kind === "step");
  return {
    run: { id: runId, jobName, labels: {} },
    lease: { runId, generation: 1, claimId: "", recorded: 0, concurrencyKey: null },
    leaseExpiresAt: Number.MAX_SAFE_INTEGER,
    input: textOf(history.input),
    execution: 2, // the first one has made the history
    startedAgoMs: 0,
    startDelayMs: null,
    priority: 0,
    fairnessKey: null,
    depth: 0,
    slotAt: slotAt ?? null,
    slot: slot === undefined ? null : JSON.stringify(slot),
    trace: null,
    resumed: [],
    finishInMs: null,
    version,
    schemaPrint: schemaPrint ?? null,
    isResumed: false,
    continues: false,
    copied: copied ?? null,
    originId: runId,
    steps: steps.map(toStep),
    pauses: records.flatMap((record) => record.kind === "step" ? [] : [toPause(record)]),
  };
}

/** A value as stored JSON; `null` for `undefined`. */
export function textOf(value: Json | undefined): JsonText | null {
  return value === undefined ? null : JSON.stringify(value);
}

/** How the children of a pause ended; `null` if it has none, or their results are lost. */
export function childrenOf({ records }: ExportedHistory, pauseId: string): ChildResult[] | null {
  const record = records.find((record) => record.kind === "children" && childrenId(record) === pauseId);
  return record?.kind === "children" ? record.result?.map(toChild) ?? null : null;
}

function toStep(step: StepHistory, index: number): StepRecord {
  const { no, attempts, status, result, error } = step;
  const failure = toFailure(error);
  return {
    name: fullName(step),
    index,
    attempts,
    recordedNo: no,
    result: status === "completed"
      ? { status, output: textOf(result) }
      : status === "failed"
      ? { status, failure }
      : { status, failure, retry: { at: 0, inMs: 0 } }, // the job asks for it: that the delay is over shows nothing more
  };
}

function toPause(record: Exclude<HistoryRecord, StepHistory>): PauseRecord {
  const { kind, no } = record;
  const pause = {
    kind,
    name: fullName(record),
    childCount: 0,
    childTotal: 0,
    child: null,
    metadata: null,
    deadlineAt: null,
  };
  switch (record.kind) {
    case "patch":
      return {
        ...pause,
        id: `patch ${pause.name}`,
        metadata: JSON.stringify(record.result),
        createdAt: 0,
        preparedNo: no,
        resolution: null,
      };
    case "children":
      return {
        ...pause,
        id: childrenId(record),
        childCount: record.count,
        childTotal: record.total,
        child: record.count === 1 && record.result !== null ? toChild(record.result[0]!) : null,
        createdAt: 0,
        preparedNo: null,
        resolution: no === null ? null : { outcome: "children", recordedNo: no },
      };
    case "receive":
      return {
        ...pause,
        id: `receive ${pause.name}`,
        deadlineAt: record.deadlineAt === undefined ? null : Date.parse(record.deadlineAt),
        createdAt: Date.parse(record.createdAt),
        preparedNo: null,
        ...toTaken(record),
      };
    default:
      return {
        ...pause,
        id: record.id,
        metadata: textOf(record.metadata),
        deadlineAt: record.deadlineAt === undefined ? null : Date.parse(record.deadlineAt),
        createdAt: Date.parse(record.createdAt),
        preparedNo: record.preparedNo,
        resolution: toResolution(record),
      };
  }
}

function toTaken({ no, messages }: ReceiveHistory): Pick<PauseRecord, "messages" | "resolution"> {
  if (no === null || messages === null) return { resolution: null };
  if (messages.length === 0) return { resolution: { outcome: "timeout", recordedNo: no } };
  return {
    messages: messages.map(({ id, name, payload, acceptedAt }) => ({
      id,
      name,
      input: textOf(payload),
      acceptedAt: Date.parse(acceptedAt),
    })),
    resolution: { outcome: "messages", recordedNo: no },
  };
}

function toResolution({ no, outcome, result, signalId }: PauseHistory): PauseRecord["resolution"] {
  if (no === null || outcome === null) return null;
  if (outcome === "timeout") return { outcome, recordedNo: no };
  return { outcome, payload: textOf(result) ?? "null", signalId: signalId ?? "", recordedNo: no };
}

function toChild({ runId, jobName, status, output, error, failedStepName }: ChildHistory): ChildResult {
  return {
    run: { id: runId, jobName, labels: {} },
    status,
    output: textOf(output),
    failure: error === undefined ? null : toFailure(error),
    failedStepName: failedStepName ?? null,
  };
}

function toFailure(error: HistoryFailure | undefined): Failure {
  const { kind = "error", name = "Error", message = "", cause } = error ?? {};
  return { kind, name, message, stack: null, cause: cause === undefined ? null : toFailure(cause) };
}

function fullName({ name, occurrence }: HistoryName): string {
  return occurrence === 1 ? name : `${name}#${occurrence}`;
}

function childrenId(name: HistoryName): string {
  return `children ${fullName(name)}`;
}
