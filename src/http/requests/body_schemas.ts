// Not `{ z }`, of which a bundler keeps all: checks and messages in 50 languages.
import * as z from "zod";
import { MAX_BULK_IDS, MAX_BULK_LIMIT, MAX_ERROR_LENGTH } from "../../engine/bulk/bulk_selection.ts";
import { ValidationError } from "../../model/error.ts";
import {
  DELAY_RULE,
  isDelay,
  isPeriod,
  isPriority,
  MAX_PRIORITY,
  PERIOD_RULE,
  PRIORITY_RULE,
} from "../../model/flow.ts";
import { type Duration, toMs } from "../../values/duration.ts";
import { INSTANT_RULE, isInstant } from "../../values/instant.ts";
import type { Json } from "../../values/json.ts";
import { checkLabels, isName, NAME_RULE } from "../../values/name.ts";
import { COALESCE_MODES, CONDITION_LIST, type Labels, RUN_STATUSES } from "../../model/run.ts";
import { INSTANT, type JsonSchema, LABELS, NUMBER, TEXT } from "../openapi/json_schema.ts";

// What a check of our own takes is said by meta(), for the OpenAPI document.
const name = z.custom<string>(isName, { error: ({ input }) => input === undefined ? "is missing" : NAME_RULE })
  .meta(TEXT);

// Not z.record(): that would leave out a key `__proto__`.
const labels = z.unknown().transform((value, context): Labels => {
  try {
    return checkLabels(value);
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
    context.addIssue({ code: "custom", message: error.message });
    return z.NEVER;
  }
}).meta(LABELS);

const DURATION = { anyOf: [NUMBER, TEXT], description: 'Milliseconds, or a duration such as "5m"' };
const period = z.custom<Duration>((value) => isPeriod(toMs(value)), PERIOD_RULE).meta(DURATION);
const instant = z.custom<string>(isInstant, INSTANT_RULE).meta(INSTANT);

// Every other option of a trigger is a field of the body. Ignored, this one would seem to have been taken.
const NO_FAIRNESS_KEY = "cannot be given over HTTP: a client with a key for each run would pass all others";

const triggerFields = z.object({
  jobName: name,
  // The schema of the job decides, also about one that is missing.
  input: z.custom<Json | undefined>().optional(),
  idempotencyKey: name.optional(),
  idempotencyUntil: z.union([z.enum(["forever", "ended", "failed"]), period]).optional(),
  concurrencyKey: name.optional(),
  coalesce: z.enum(COALESCE_MODES).optional(),
  labels: labels.optional(),
  startAt: instant.optional(),
  delay: z.custom<Duration>((value) => isDelay(toMs(value)), DELAY_RULE).meta(DURATION).optional(),
  priority: z.custom<number>(isPriority, PRIORITY_RULE)
    .meta({ type: "integer", minimum: -MAX_PRIORITY, maximum: MAX_PRIORITY }).optional(),
  fairnessKey: z.custom<undefined>((value) => value === undefined, NO_FAIRNESS_KEY).optional(),
  startWithin: period.optional(),
  finishWithin: period.optional(),
});

/** The fields of the body of `POST /trigger`. */
export const TRIGGER_FIELDS: readonly string[] = Object.keys(triggerFields.shape);

/** The body of `POST /trigger`. Other fields are left out. */
export const triggerBody = triggerFields.refine(
  ({ coalesce, concurrencyKey }) => coalesce === undefined || concurrencyKey !== undefined,
  {
    path: ["coalesce"],
    message: "needs a concurrencyKey",
  },
).refine(({ startAt, delay }) => startAt === undefined || delay === undefined, {
  path: ["delay"],
  message: "excludes startAt",
}).refine(({ coalesce, startAt, delay }) => coalesce === undefined || (startAt === undefined && delay === undefined), {
  path: ["coalesce"],
  message: "excludes startAt and delay",
}).refine(({ idempotencyUntil, idempotencyKey }) => idempotencyUntil === undefined || idempotencyKey !== undefined, {
  path: ["idempotencyUntil"],
  message: "needs an idempotencyKey",
});

/** The body of `POST /signal`. Other fields are left out. */
export const signalBody = z.object({
  signalId: name.refine((text) => text.trim() !== "", "must have a character that is not white space")
    .meta({ ...TEXT, minLength: 1, maxLength: 255 }),
  payload: z.custom<Json>((value) => value !== undefined, "is missing; it may be null"),
});

/** The body of `POST /send`. Other fields are left out. */
export const sendBody = z.object({
  name,
  payload: z.custom<Json>((value) => value !== undefined, "is missing; it may be null"),
  id: name.optional(),
  jobName: name.optional(),
  key: name.optional(),
  start: triggerFields.omit({ jobName: true, idempotencyKey: true, idempotencyUntil: true, coalesce: true }).strict()
    .optional(),
}).refine(({ jobName, key }) => (jobName === undefined) === (key === undefined), {
  path: ["key"],
  message: "goes with jobName",
}).refine(({ start, key }) => start === undefined || key !== undefined, { path: ["start"], message: "needs a key" });

/** The body of `POST /jobs/pause`. Other fields are left out; the engine checks the length of the note. */
export const noteBody = z.object({ note: z.string().optional() });

const listOf = <T>(value: z.ZodType<T>) => z.union([value, z.array(value)]);

const schemaOf = (by: string, values: readonly string[] | undefined): z.ZodType<string | boolean> =>
  by === "has" ? z.boolean() : by !== "is" ? instant : values === undefined ? name : z.enum(values);

const bulkFields = {
  runIds: z.array(name).meta({ maxItems: MAX_BULK_IDS }).optional(),
  filter: z.strictObject({
    jobName: listOf(name).optional(),
    status: listOf(z.enum(RUN_STATUSES)).optional(),
    labels: labels.optional(),
    ...Object.fromEntries(CONDITION_LIST.map(({ name, by, values }) => [name, schemaOf(by, values).optional()])),
    error: z.string().meta({ minLength: 1, maxLength: MAX_ERROR_LENGTH }).optional(),
  }).meta({ minProperties: 1 }).optional(),
  dryRun: z.boolean().optional(),
  limit: z.number().meta({ type: "integer", minimum: 1, maximum: MAX_BULK_LIMIT }).optional(),
  cursor: z.string().optional(),
};

const isOneSelection = ({ runIds, filter }: { runIds?: unknown; filter?: unknown }) =>
  (runIds === undefined) !== (filter === undefined);
const ONE_SELECTION = "must have either runIds or filter";

/** The body of `POST /runs/cancel`, `/runs/resume` and `/runs/delete`. The engine checks sizes and limits. */
export const bulkBody = z.strictObject(bulkFields).refine(isOneSelection, ONE_SELECTION);

/** The body of `POST /runs/retrigger`. */
export const bulkRetriggerBody = z.strictObject({ ...bulkFields, from: z.enum(["start", "failure"]).optional() })
  .refine(isOneSelection, ONE_SELECTION);

/** The JSON Schemas of the bodies, for the OpenAPI document. */
export function bodySchemas(): Record<string, JsonSchema> {
  const oneSelection = { oneOf: [{ required: ["runIds"] }, { required: ["filter"] }] };
  return {
    TriggerRequest: jsonSchemaOf(triggerFields.omit({ fairnessKey: true })),
    SignalRequest: jsonSchemaOf(signalBody),
    SendRequest: jsonSchemaOf(sendBody),
    PauseRequest: jsonSchemaOf(noteBody),
    BulkRequest: { ...jsonSchemaOf(bulkBody), ...oneSelection },
    BulkRetriggerRequest: { ...jsonSchemaOf(bulkRetriggerBody), ...oneSelection },
  };
}

function jsonSchemaOf(schema: z.ZodType): JsonSchema {
  const { $schema: _, ...described } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  return described;
}
