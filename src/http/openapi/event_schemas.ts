import type { RunEvent, RunEventBase, RunHappening } from "../../model/event.ts";
import { FAILURE_KINDS } from "../../model/failure.ts";
import { HOLD_CODES, type RecordName } from "../../model/hold.ts";
import { RUN_STATUSES, type RunStatus } from "../../model/run.ts";
import type { RunsDigest } from "../streams/runs_digest.ts";
import {
  ANY,
  COUNT,
  INSTANT,
  type JsonSchema,
  LABELS,
  listOf,
  objectOf,
  oneOf,
  optional,
  orNull,
  ref,
  TEXT,
} from "./json_schema.ts";

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
    status: oneOf(RUN_STATUSES),
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
          status: orNull(oneOf(RUN_STATUSES)),
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
