import type { ClientSignalReceipt, ClientWait } from "../../model/wait.ts";
import type { BulkResult, SkippedRun } from "../../engine/bulk/perform_bulk.ts";
import { FAILURE_KINDS } from "../../model/failure.ts";
import { type Held, HOLD_CODES } from "../../model/hold.ts";
import type { LogEntry } from "../../model/log.ts";
import type { ClientRun } from "../../model/client_run.ts";
import { type Progress, RUN_STATUSES, type RunPage } from "../../model/run.ts";
import type { ClientStep } from "../../model/step.ts";
import type { ClientMessage, SendResult } from "../../model/message.ts";
import type { StreamInfo } from "../../model/stream.ts";
import {
  ANY,
  COUNT,
  FLAG,
  INSTANT,
  type JsonSchema,
  LABELS,
  listOf,
  NUMBER,
  objectOf,
  oneOf,
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
  error: TEXT,
  failedStepName: TEXT,
  progress: ref("Progress"),
  labels: LABELS,
  createdAt: INSTANT,
  triggeredBy: TEXT,
  startedAt: INSTANT,
  completedAt: INSTANT,
  cancelledBy: TEXT,
  startAt: INSTANT,
  priority: { type: "integer" },
  startBy: INSTANT,
  finishBy: INSTANT,
  failureKind: oneOf(FAILURE_KINDS),
  parentRunId: TEXT,
  scheduleName: TEXT,
  slotAt: INSTANT,
  held: ref("Held"),
  endOf: TEXT,
  endRunId: TEXT,
  retriggerOf: TEXT,
  retriggeredAs: TEXT,
  completedAs: TEXT,
  isTerminal: FLAG,
  isActive: FLAG,
  isWaiting: FLAG,
};
const { input: _, output: __, ...SUMMARY_FIELDS } = RUN_FIELDS;
const OPTIONAL_RUN_FIELDS: readonly Exclude<keyof ClientRun, "input" | "output">[] = [
  "error",
  "failedStepName",
  "progress",
  "triggeredBy",
  "startedAt",
  "completedAt",
  "cancelledBy",
  "startAt",
  "priority",
  "startBy",
  "finishBy",
  "failureKind",
  "parentRunId",
  "scheduleName",
  "slotAt",
  "held",
  "endOf",
  "endRunId",
  "retriggerOf",
  "retriggeredAs",
  "completedAs",
];

/** The fields of a wait. */
export const WAIT_FIELDS: { readonly [Name in keyof ClientWait]-?: JsonSchema } = {
  id: TEXT,
  runId: TEXT,
  name: TEXT,
  metadata: ANY,
  status: oneOf(["pending", "resolved", "cancelled", "closed"]),
  outcome: orNull(oneOf(["signal", "timeout"])),
  payload: ANY,
  signalId: orNull(TEXT),
  signalledBy: TEXT,
  createdAt: INSTANT,
  deadlineAt: orNull(INSTANT),
  suspendedAt: orNull(INSTANT),
  resolvedAt: orNull(INSTANT),
  firstResumedAt: orNull(INSTANT),
  payloadSchema: { description: "The JSON Schema that a payload has to fit" },
};

/** The schemas of runs, of what belongs to them, and of what is done with them. */
export const RUN_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  Run: objectOf<ClientRun>(RUN_FIELDS, OPTIONAL_RUN_FIELDS),
  RunSummary: objectOf<Omit<ClientRun, "input" | "output">>(SUMMARY_FIELDS, OPTIONAL_RUN_FIELDS),
  Progress: objectOf<Progress>({ current: NUMBER, total: NUMBER, message: TEXT }, ["total", "message"]),
  Held: objectOf<Held>({ code: oneOf(HOLD_CODES), message: TEXT, since: INSTANT }),
  RunList: objectOf<RunPage>({
    runs: { anyOf: [listOf(ref("Run")), listOf(ref("RunSummary"))], description: "Summaries with fields=summary" },
    total: { ...COUNT, description: "Left out with total=false" },
    totalIsAtLeast: { const: true, description: "There are at least so many: no more were counted" },
    hasMore: FLAG,
  }, ["total", "totalIsAtLeast"]),
  Step: objectOf<ClientStep>({
    id: TEXT,
    runId: TEXT,
    name: TEXT,
    index: COUNT,
    status: oneOf(["completed", "failed", "cancelled", "retrying"]),
    output: ANY,
    error: orNull(TEXT),
    attempts: COUNT,
    startedAt: INSTANT,
    completedAt: orNull(INSTANT),
  }),
  StreamInfo: objectOf<StreamInfo>({ name: TEXT, items: COUNT, bytes: COUNT, isOpen: FLAG, updatedAt: INSTANT }),
  Wait: objectOf<ClientWait>(WAIT_FIELDS, ["payloadSchema", "signalledBy"]),
  LogEntry: objectOf<LogEntry>({
    id: TEXT,
    runId: TEXT,
    stepName: orNull(TEXT),
    level: oneOf(["info", "warn", "error"]),
    message: TEXT,
    data: ANY,
    timestamp: INSTANT,
  }),
  Message: objectOf<ClientMessage>({
    id: TEXT,
    name: TEXT,
    payload: ANY,
    status: oneOf(["unread", "received", "closed"]),
    acceptedAt: INSTANT,
    sentBy: TEXT,
    receivedAt: orNull(INSTANT),
    receivedBy: orNull(TEXT),
  }, ["sentBy"]),
  SendResult: objectOf<SendResult>({
    runId: TEXT,
    messageId: TEXT,
    disposition: oneOf(["accepted", "duplicate"]),
    started: { type: "boolean" },
  }),
  SignalReceipt: objectOf<ClientSignalReceipt>({ wait: ref("Wait"), disposition: oneOf(["accepted", "duplicate"]) }),
  TriggerResult: objectOf<{ runId: string; disposition: string; status: string }>({
    runId: TEXT,
    disposition: DISPOSITION,
    status: STATUS,
  }),
  RetriggerResult: objectOf<{ success: true; runId: string; status: string }>({
    success: SUCCESS,
    runId: TEXT,
    status: STATUS,
  }),
  Success: objectOf<{ success: true }>({ success: SUCCESS }),
  BulkResult: objectOf<BulkResult>({
    matched: COUNT,
    done: COUNT,
    skipped: listOf(objectOf<SkippedRun>({ runId: TEXT, code: TEXT })),
    next: orNull(TEXT),
  }),
};
