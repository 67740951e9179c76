// Not `zod`, of which a bundle has twice as much, and not `{ z }`, of which it has all.
import * as z from "zod/mini";
import en from "zod/v4/locales/en.js";
import { MAX_BULK_IDS, MAX_BULK_LIMIT, MAX_ERROR_LENGTH } from "../../engine/bulk/bulk_selection.ts";
import { ValidationError } from "../../model/error.ts";
import {
  DELAY_RULE,
  IDEMPOTENCY_UNTIL_RULE,
  isDelay,
  isPeriod,
  isPriority,
  MAX_PRIORITY,
  PERIOD_RULE,
  PRIORITY_RULE,
} from "../../model/flow.ts";
import { MAX_MESSAGE_ID } from "../../model/message.ts";
import { type Duration, toMs } from "../../values/duration.ts";
import { INSTANT_RULE, isInstant } from "../../values/instant.ts";
import type { Json } from "../../values/json.ts";
import { checkLabels, isName, NAME_RULE, ruleOf } from "../../values/name.ts";
import { COALESCE_MODES, CONDITION_LIST, type Labels, RUN_STATUSES } from "../../model/run.ts";
import { INSTANT, type JsonSchema, LABELS, NUMBER, TEXT } from "../openapi/json_schema.ts";

// `zod/mini` has no messages of its own. Those that somebody has chosen stay.
if (z.config().localeError === undefined) z.config(en());

// What a check of our own takes is said by meta(), for the OpenAPI document.
const name = z.custom<string>(isName, { error: ({ input }) => input === undefined ? "is missing" : NAME_RULE })
  .check(z.meta(TEXT));

// Not z.record(): that would leave out a key `__proto__`.
const labels = z.pipe(
  z.unknown(),
  z.transform((value, context): Labels => {
    try {
      return checkLabels(value);
    } catch (error) {
      if (!(error instanceof ValidationError)) throw error;
      context.issues.push({ code: "custom", message: error.message, input: value });
      return z.NEVER;
    }
  }),
).check(z.meta(LABELS));

const DURATION = { anyOf: [NUMBER, TEXT], description: 'Milliseconds, or a duration such as "5m"' };
const period = z.custom<Duration>((value) => isPeriod(toMs(value)), PERIOD_RULE).check(z.meta(DURATION));
const instant = z.custom<string>(isInstant, INSTANT_RULE).check(z.meta(INSTANT));

// Every other option of a trigger is a field of the body. Ignored, this one would seem to have been taken.
const NO_FAIRNESS_KEY = "cannot be given over HTTP: a client with a key for each run would pass all others";

const triggerFields = z.object({
  jobName: name,
  // The schema of the job decides, also about one that is missing.
  input: z.optional(z.custom<Json | undefined>()),
  idempotencyKey: z.optional(name),
  idempotencyUntil: z.optional(z.union([z.enum(["forever", "ended", "failed"]), period], IDEMPOTENCY_UNTIL_RULE)),
  concurrencyKey: z.optional(name),
  coalesce: z.optional(z.enum(COALESCE_MODES)),
  labels: z.optional(labels),
  startAt: z.optional(instant),
  delay: z.optional(z.custom<Duration>((value) => isDelay(toMs(value)), DELAY_RULE).check(z.meta(DURATION))),
  priority: z.optional(
    z.custom<number>(isPriority, PRIORITY_RULE)
      .check(z.meta({ type: "integer", minimum: -MAX_PRIORITY, maximum: MAX_PRIORITY })),
  ),
  fairnessKey: z.optional(z.custom<undefined>((value) => value === undefined, NO_FAIRNESS_KEY)),
  startWithin: z.optional(period),
  finishWithin: z.optional(period),
});

const triggerBody = triggerFields.check(
  z.refine(({ coalesce, concurrencyKey }) => coalesce === undefined || concurrencyKey !== undefined, {
    path: ["coalesce"],
    message: "needs a concurrencyKey",
  }),
  z.refine(({ startAt, delay }) => startAt === undefined || delay === undefined, {
    path: ["delay"],
    message: "excludes startAt",
  }),
  z.refine(({ coalesce, startAt, delay }) => coalesce === undefined || (startAt === undefined && delay === undefined), {
    path: ["coalesce"],
    message: "excludes startAt and delay",
  }),
  z.refine(({ idempotencyUntil, idempotencyKey }) => idempotencyUntil === undefined || idempotencyKey !== undefined, {
    path: ["idempotencyUntil"],
    message: "needs an idempotencyKey",
  }),
);

const signalBody = z.object({
  signalId: name.check(
    z.refine((text) => text.trim() !== "", "must have a character that is not white space"),
    z.meta({ ...TEXT, minLength: 1, maxLength: 255 }),
  ),
  payload: z.custom<Json>((value) => value !== undefined, "is missing; it may be null"),
});

const messageId = z.custom<string>((value) => isName(value) && value.length <= MAX_MESSAGE_ID, ruleOf(MAX_MESSAGE_ID))
  .check(z.meta({ ...TEXT, minLength: 1, maxLength: MAX_MESSAGE_ID }));

const sendBody = z.object({
  name,
  payload: z.custom<Json>((value) => value !== undefined, "is missing; it may be null"),
  id: z.optional(messageId),
  jobName: z.optional(name),
  key: z.optional(name),
  start: z.optional(
    z.catchall(
      z.omit(triggerFields, { jobName: true, idempotencyKey: true, idempotencyUntil: true, coalesce: true }),
      z.never(),
    ),
  ),
}).check(
  z.refine(({ jobName, key }) => (jobName === undefined) === (key === undefined), {
    path: ["key"],
    message: "goes with jobName",
  }),
  z.refine(({ start, key }) => start === undefined || key !== undefined, { path: ["start"], message: "needs a key" }),
);

const listOf = <T>(value: z.ZodMiniType<T>, rule: string) =>
  z.union([value, z.array(value)], `${rule}, or a list of such`);

const schemaOf = (by: string, values: readonly string[] | undefined): z.ZodMiniType<string | boolean> =>
  by === "has" ? z.boolean() : by !== "is" ? instant : values === undefined ? name : z.enum(values);

const bulkFields = {
  runIds: z.optional(z.array(name).check(z.meta({ maxItems: MAX_BULK_IDS }))),
  filter: z.optional(
    z.strictObject({
      jobName: z.optional(listOf(name, NAME_RULE)),
      status: z.optional(listOf(z.enum(RUN_STATUSES), `must be one of ${RUN_STATUSES.join(", ")}`)),
      labels: z.optional(labels),
      ...Object.fromEntries(CONDITION_LIST.map(({ name, by, values }) => [name, z.optional(schemaOf(by, values))])),
      error: z.optional(z.string().check(z.meta({ minLength: 1, maxLength: MAX_ERROR_LENGTH }))),
    }).check(z.meta({ minProperties: 1 })),
  ),
  dryRun: z.optional(z.boolean()),
  limit: z.optional(z.number().check(z.meta({ type: "integer", minimum: 1, maximum: MAX_BULK_LIMIT }))),
  cursor: z.optional(z.string()),
};

const ONE_SELECTION = z.refine<{ runIds?: unknown; filter?: unknown }>(
  ({ runIds, filter }) => (runIds === undefined) !== (filter === undefined),
  "must have either runIds or filter",
);
const DESCRIBED = z.meta({ oneOf: [{ required: ["runIds"] }, { required: ["filter"] }] });
const from = z.optional(z.enum(["start", "failure"]));

/** The bodies. Unknown fields are left out, but for those of bulk operations, whose sizes and limits the engine checks. */
export const BODIES = {
  TriggerRequest: triggerBody,
  SignalRequest: signalBody,
  SendRequest: sendBody,
  PauseRequest: z.object({ note: z.optional(z.string()) }), // the engine checks its length
  BulkRequest: z.strictObject(bulkFields).check(ONE_SELECTION, DESCRIBED),
  BulkRetriggerRequest: z.strictObject({ ...bulkFields, from }).check(ONE_SELECTION, DESCRIBED),
};

/** The name of a body. */
export type BodyName = keyof typeof BODIES;
/** A body that was parsed. */
export type BodyOf<Name extends BodyName> = z.output<(typeof BODIES)[Name]>;

/** The JSON Schemas of the bodies, for the OpenAPI document. */
export function bodySchemas(): Record<string, JsonSchema> {
  const described = { ...BODIES, TriggerRequest: z.omit(triggerFields, { fairnessKey: true }) };
  return Object.fromEntries(
    Object.entries(described).map(([name, schema]) => {
      const { $schema: _, ...shown } = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
      return [name, shown];
    }),
  );
}
