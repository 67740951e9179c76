// Not `{ z }`, of which a bundler keeps all: checks and messages in 50 languages.
import * as z from "zod";
import { ValidationError } from "../../error.ts";
import { DELAY_RULE, isDelay, isPeriod, isPriority, PERIOD_RULE, PRIORITY_RULE } from "../../flow.ts";
import { type Duration, toMs } from "../../values/duration.ts";
import { INSTANT_RULE, isInstant } from "../../values/instant.ts";
import type { Json } from "../../values/json.ts";
import { checkLabels, isName, NAME_RULE } from "../../values/name.ts";
import { COALESCE_MODES, CONDITION_LIST, type Labels, RUN_STATUSES } from "../../run.ts";

const name = z.custom<string>(isName, { error: ({ input }) => input === undefined ? "is missing" : NAME_RULE });

// Not z.record(): that would leave out a key `__proto__`.
const labels = z.unknown().transform((value, context): Labels => {
  try {
    return checkLabels(value);
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
    context.addIssue({ code: "custom", message: error.message });
    return z.NEVER;
  }
});

const period = z.custom<Duration>((value) => isPeriod(toMs(value)), PERIOD_RULE);

// Every other option of a trigger is a field of the body. Ignored, this one would seem to have been taken.
const NO_FAIRNESS_KEY = "cannot be given over HTTP: a client with a key for each run would pass all others";

const triggerFields = z.object({
  jobName: name,
  // The schema of the job decides, also about one that is missing.
  input: z.custom<Json | undefined>().optional(),
  idempotencyKey: name.optional(),
  concurrencyKey: name.optional(),
  coalesce: z.enum(COALESCE_MODES).optional(),
  labels: labels.optional(),
  startAt: z.custom<string>(isInstant, INSTANT_RULE).optional(),
  delay: z.custom<Duration>((value) => isDelay(toMs(value)), DELAY_RULE).optional(),
  priority: z.custom<number>(isPriority, PRIORITY_RULE).optional(),
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
});

/** The body of `POST /signal`. Other fields are left out. */
export const signalBody = z.object({
  signalId: name.refine((text) => text.trim() !== "", "must have a character that is not white space"),
  payload: z.custom<Json>((value) => value !== undefined, "is missing; it may be null"),
});

/** The body of `POST /jobs/pause`. Other fields are left out; the engine checks the length of the note. */
export const noteBody = z.object({ note: z.string().optional() });

const instant = z.custom<string>(isInstant, INSTANT_RULE);
const listOf = <T>(value: z.ZodType<T>) => z.union([value, z.array(value)]);

const schemaOf = (by: string, values: readonly string[] | undefined): z.ZodType<string> =>
  by !== "is" ? instant : values === undefined ? name : z.enum(values);

const bulkFields = {
  runIds: z.array(name).optional(),
  filter: z.strictObject({
    jobName: listOf(name).optional(),
    status: listOf(z.enum(RUN_STATUSES)).optional(),
    labels: labels.optional(),
    ...Object.fromEntries(CONDITION_LIST.map(({ name, by, values }) => [name, schemaOf(by, values).optional()])),
    error: z.string().optional(),
  }).optional(),
  dryRun: z.boolean().optional(),
  limit: z.number().optional(),
  cursor: z.string().optional(),
};

const isOneSelection = ({ runIds, filter }: { runIds?: unknown; filter?: unknown }) =>
  (runIds === undefined) !== (filter === undefined);
const ONE_SELECTION = "must have either runIds or filter";

/** The body of `POST /runs/cancel` and `/runs/delete`. The engine checks sizes and limits. */
export const bulkBody = z.strictObject(bulkFields).refine(isOneSelection, ONE_SELECTION);

/** The body of `POST /runs/retrigger`. */
export const bulkRetriggerBody = z.strictObject({ ...bulkFields, from: z.enum(["start", "failure"]).optional() })
  .refine(isOneSelection, ONE_SELECTION);
