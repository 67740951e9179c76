import type { ClientSignalReceipt, ClientWait } from "../../model/wait.ts";
import type { BulkResult, SkippedRun } from "../../engine/bulk/perform_bulk.ts";
import { FAILURE_KINDS } from "../../model/failure.ts";
import { type Held, HOLD_CODES, type RecordName } from "../../model/hold.ts";
import type { LogEntry } from "../../model/log.ts";
import type { ClientRun } from "../../model/client_run.ts";
import { type Progress, RUN_STATUSES, type RunPage, type RunStatus } from "../../model/run.ts";
import type { ClientStep } from "../../model/step.ts";
import type { ClientMessage, SendResult } from "../../model/message.ts";
import type { StreamInfo } from "../../model/stream.ts";
import type { RunEvent, RunEventBase, RunHappening } from "../../model/event.ts";
import type { RunsDigest } from "../streams/runs_digest.ts";
import {
  ANY,
  COUNT,
  fields,
  FLAG,
  INSTANT,
  type JsonSchema,
  LABELS,
  listOf,
  NUMBER,
  objectOf,
  oneOf,
  optional,
  orNull,
  ref,
  TEXT,
} from "./json_schema.ts";

const STATUS = oneOf(RUN_STATUSES);
const DISPOSITION = oneOf(["created", "idempotent", "coalesced"]);
const SUCCESS: JsonSchema = { const: true };

const RUN_FIELDS: { readonly [Name in keyof ClientRun]-?: JsonSchema } = {
  id: TEXT,
  jobName: TEXT,
  status: STATUS,
  input: ANY,
  output: ANY,
  ...fields(
    optional(TEXT),
    "error failedStepName triggeredBy cancelledBy parentRunId scheduleName endOf endRunId retriggerOf retriggeredAs completedAs",
  ),
  progress: optional(ref("Progress")),
  labels: LABELS,
  createdAt: INSTANT,
  ...fields(optional(INSTANT), "startedAt completedAt startAt startBy finishBy slotAt"),
  priority: optional({ type: "integer" }),
  failureKind: optional(oneOf(FAILURE_KINDS)),
  held: optional(ref("Held")),
  ...fields(FLAG, "isTerminal isActive isWaiting"),
};
const { input: _, output: __, ...SUMMARY_FIELDS } = RUN_FIELDS;

/** The fields of a wait. */
export const WAIT_FIELDS: { readonly [Name in keyof ClientWait]-?: JsonSchema } = {
  ...fields(TEXT, "id runId name"),
  metadata: ANY,
  status: oneOf(["pending", "resolved", "cancelled", "closed"]),
  outcome: orNull(oneOf(["signal", "timeout"])),
  payload: ANY,
  signalId: orNull(TEXT),
  signalledBy: optional(TEXT),
  createdAt: INSTANT,
  ...fields(orNull(INSTANT), "deadlineAt suspendedAt resolvedAt firstResumedAt"),
  payloadSchema: optional({ description: "The JSON Schema that a payload has to fit" }),
};

/** The schemas of runs, of what belongs to them, and of what is done with them. */
export const RUN_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  Run: objectOf<ClientRun>()(RUN_FIELDS),
  RunSummary: objectOf<Omit<ClientRun, "input" | "output">>()(SUMMARY_FIELDS),
  Progress: objectOf<Progress>()({ current: NUMBER, total: optional(NUMBER), message: optional(TEXT) }),
  Held: objectOf<Held>()({ code: oneOf(HOLD_CODES), message: TEXT, since: INSTANT }),
  RunList: objectOf<RunPage>()({
    runs: { anyOf: [listOf(ref("Run")), listOf(ref("RunSummary"))], description: "Summaries with fields=summary" },
    total: optional({ ...COUNT, description: "Left out with total=false" }),
    totalIsAtLeast: optional({ const: true, description: "There are at least so many: no more were counted" }),
    hasMore: FLAG,
  }),
  Step: objectOf<ClientStep>()({
    ...fields(TEXT, "id runId name"),
    index: COUNT,
    status: oneOf(["completed", "failed", "cancelled", "retrying"]),
    output: ANY,
    error: orNull(TEXT),
    attempts: COUNT,
    startedAt: INSTANT,
    completedAt: orNull(INSTANT),
  }),
  StreamInfo: objectOf<StreamInfo>()({ name: TEXT, items: COUNT, bytes: COUNT, isOpen: FLAG, updatedAt: INSTANT }),
  Wait: objectOf<ClientWait>()(WAIT_FIELDS),
  LogEntry: objectOf<LogEntry>()({
    ...fields(TEXT, "id runId message"),
    stepName: orNull(TEXT),
    level: oneOf(["info", "warn", "error"]),
    data: ANY,
    timestamp: INSTANT,
  }),
  Message: objectOf<ClientMessage>()({
    id: TEXT,
    name: TEXT,
    payload: ANY,
    status: oneOf(["unread", "received", "closed"]),
    acceptedAt: INSTANT,
    sentBy: optional(TEXT),
    receivedAt: orNull(INSTANT),
    receivedBy: orNull(TEXT),
  }),
  SendResult: objectOf<SendResult>()({
    runId: TEXT,
    messageId: TEXT,
    disposition: oneOf(["accepted", "duplicate"]),
    started: { type: "boolean" },
  }),
  SignalReceipt: objectOf<ClientSignalReceipt>()({ wait: ref("Wait"), disposition: oneOf(["accepted", "duplicate"]) }),
  TriggerResult: objectOf<{ runId: string; disposition: string; status: string }>()({
    runId: TEXT,
    disposition: DISPOSITION,
    status: STATUS,
  }),
  RetriggerResult: objectOf<{ success: true; runId: string; status: string }>()({
    success: SUCCESS,
    runId: TEXT,
    status: STATUS,
  }),
  Success: objectOf<{ success: true }>()({ success: SUCCESS }),
  BulkResult: objectOf<BulkResult>()({
    matched: COUNT,
    done: COUNT,
    skipped: listOf(objectOf<SkippedRun>()({ runId: TEXT, code: TEXT })),
    next: orNull(TEXT),
  }),
};

const BASE: { [Name in keyof RunEventBase]: JsonSchema } = {
  runId: TEXT,
  jobName: TEXT,
  labels: LABELS,
  timestamp: INSTANT,
  sequence: COUNT,
};
const NAMES = listOf(
  objectOf<RecordName>()({ kind: oneOf(["step", "wait", "sleep", "children", "receive"]), name: TEXT }),
);
const STEP = { stepName: TEXT, stepIndex: COUNT };
const LEASE = { leaseOwner: TEXT, leaseExpiresAt: INSTANT };
const DURATION = { ...COUNT, description: "Milliseconds" };

type FieldsOf<T extends RunEvent["type"]> = {
  [Name in Exclude<keyof Extract<RunHappening, { type: T }>, "type" | "thrown">]-?: JsonSchema;
};

const NOT_IN_LISTS = optional({ description: "Not in streams of several runs" });
const BY = { by: orNull(TEXT) };

/** What each event has besides the fields of all events. */
const FIELDS: { [T in Exclude<RunEvent["type"], "run:lease-renewed">]: FieldsOf<T> } = {
  "run:trigger": {
    input: NOT_IN_LISTS,
    startAt: orNull(INSTANT),
    parentRunId: orNull(TEXT),
    scheduleName: orNull(TEXT),
    slotAt: orNull(INSTANT),
    ...BY,
  },
  "run:coalesced": {
    status: STATUS,
    skippedInput: NOT_IN_LISTS,
    skippedLabels: { ...LABELS, ...NOT_IN_LISTS },
  },
  "run:leased": LEASE,
  "run:start": { execution: COUNT },
  "run:waiting": { waitId: orNull(TEXT), waitName: TEXT, deadlineAt: orNull(INSTANT) },
  "run:hold": { code: oneOf(HOLD_CODES), message: TEXT },
  "run:resume": BY,
  "run:diverged": { isNew: NAMES, unasked: NAMES },
  "run:progress": { progress: ref("Progress"), of: optional(oneOf(["children"])) },
  "run:complete": { output: ANY, duration: DURATION },
  "run:fail": { error: TEXT, failedStepName: orNull(TEXT), failureKind: oneOf(FAILURE_KINDS) },
  "run:cancel": BY,
  "run:retry": { newRunId: TEXT, ...BY },
  "run:delete": BY,
  "step:start": { ...STEP, attempt: COUNT },
  "step:complete": { ...STEP, output: ANY, duration: DURATION },
  "step:fail": { ...STEP, attempt: COUNT, error: TEXT, retryAt: orNull(INSTANT) },
  "step:cancel": STEP,
  "log:write": { stepName: orNull(TEXT), level: oneOf(["info", "warn", "error"]), message: TEXT, data: ANY },
};

/** The schemas of the events of streams. */
export const EVENT_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  StreamMessage: {
    oneOf: [
      ref("RunEvent"),
      ref("RunsDigest"),
      {
        ...objectOf<{ type: "gap" }>()({ type: { const: "gap" } }),
        description: "Events are missing: read the runs again",
      },
    ],
  },
  RunsDigest: {
    ...objectOf<RunsDigest>()({
      type: { const: "runs:digest" },
      count: COUNT,
      byJob: { type: "object", additionalProperties: COUNT },
      runs: orNull(listOf(
        objectOf<{ id: string; status: RunStatus | null }>()({
          id: TEXT,
          status: orNull(STATUS),
        }),
      )),
    }),
    description: "With digestMs: how many events there were, and which runs have a new status (null: deleted)",
  },
  RunEvent: {
    oneOf: Object.entries(FIELDS).map(([type, fields]) =>
      objectOf<Record<string, unknown>>()({ type: { const: type }, ...BASE, ...fields })
    ),
  },
};
