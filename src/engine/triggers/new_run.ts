import { type Issue, ValidationError } from "../../model/error.ts";
import type { NewEnd } from "../../model/end.ts";
import type { JobEnd } from "../../model/job.ts";
import { type Flow, IDEMPOTENCY_UNTIL_RULE, isPeriod, type JobFlow } from "../../model/flow.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import type { Host } from "../../model/host.ts";
import { andThen, type Soon } from "../../values/at_once.ts";
import { type ActorOptions, encodeOrigin, readActor } from "../../model/origin.ts";
import { decode, encode } from "../../values/json.ts";
import { toMs } from "../../values/duration.ts";
import { kindOf, propertyOf } from "../../values/unknown_values.ts";
import { checkLabels, checkName } from "../../values/name.ts";
import {
  type Coalesce,
  COALESCE_MODES,
  type Disposition,
  type IdempotencyUntil,
  type Labels,
  parseRun,
  type Run,
  type StoredRun,
} from "../../model/run.ts";
import { parseNow, type Schema } from "../../model/schema.ts";
import type { CatalogJob } from "../../model/job/job_catalog.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import { type FlowOptions, triggerFlow } from "./trigger_flow.ts";

/** Options of a trigger. */
export interface TriggerOptions<L = Labels> extends FlowOptions, ActorOptions {
  /**
   * If a run of the same job with this key exists, it is returned instead of a new one. 1 to 255 characters.
   */
  idempotencyKey?: string;
  /**
   * Which runs with the `idempotencyKey` count: all (`forever`), those that have not ended (`ended`), those that have not
   * failed or been cancelled (`failed`), or those that were triggered less than so long ago, such as `"1d"`. If none
   * counts, a new run takes the key. Default: `forever`.
   */
  idempotencyUntil?: IdempotencyUntil;
  /** Runs with this key, of any job, are executed one after another. 1 to 255 characters. */
  concurrencyKey?: string;
  /** What to do when runs of this job and key exist already. Needs a `concurrencyKey`. Default: add another run. */
  coalesce?: Coalesce;
  /** Key and value pairs for filters and access rules; up to 64. The engine's `labels` schema checks them. */
  labels?: L;
}

/** The run that a trigger created or found, with the disposition. */
export type TriggerResult = Run & {
  /** Whether the run is new. */
  disposition: Disposition;
};

/** What a store did with the request for a run, for the caller of a trigger. */
export function toTriggerResult({ run, disposition }: Enqueued): TriggerResult {
  return { ...parseRun(run), disposition };
}

/** Checks that are called during a trigger. If one throws, the trigger is refused: nothing is stored or published. */
export interface TriggerGuard {
  /**
   * Before a run is added.
   *
   * @param job The flow of its job.
   * @returns The run to add: the same one, or one with other keys.
   */
  beforeAdding(run: NewRun, job: JobFlow): Promise<NewRun>;
  /**
   * Before the trigger joins or returns an existing run. It throws to refuse that. `null`: any run is allowed.
   */
  beforeJoining: ((found: StoredRun) => Promise<void>) | null;
}

/** The dependencies of {@linkcode newRun}. */
type NewRunDeps = Pick<ExecutionDeps, "host" | "maxValueBytes"> & {
  /** The label whose value is the default fairness key; `null`: none. */
  fairnessLabel: string | null;
};

/** What a retry takes from the old run. */
export interface RetryParts {
  /** The old run, and where the retry begins. */
  retriggerOf: NonNullable<NewRun["retriggerOf"]>;
  /** When, in which order and under which limits the retry is executed. */
  flow: Flow;
}

/** What else is known of a run to build. */
interface NewRunParts {
  /** What a retry takes from the old run. Left out: it is none. */
  retry?: RetryParts | undefined;
  /** Whether the input was read from JSON, and nobody else has it. Default: it may be any value. */
  isJson?: boolean;
}

/**
 * Checks a trigger and builds the run that it asks for: at once, if the schema of the job answers at once.
 *
 * @throws {ValidationError} The input does not fit the job's schema, or an option is not valid.
 * @throws {SerializationError} The input, as given or as parsed, cannot be stored as JSON.
 */
export function newRun(
  { job, aliases, schemaPrint }: CatalogJob,
  input: unknown,
  options: TriggerOptions,
  deps: NewRunDeps,
  { retry, isJson = false }: NewRunParts = {},
): Soon<NewRun> {
  const { idempotencyKey = null, concurrencyKey = null, coalesce = null, labels = {} } = options;
  const by = readActor(options);
  if (idempotencyKey !== null) checkName(idempotencyKey, "idempotencyKey");
  if (concurrencyKey !== null) checkName(concurrencyKey, "concurrencyKey");
  const idempotencyUntil = readIdempotencyUntil(options.idempotencyUntil, idempotencyKey !== null);
  checkCoalesce(coalesce, options);
  const checkedLabels = checkLabels(labels);
  const flow = retry?.flow ?? triggerFlow(options, {
    job: job.flow,
    labels: checkedLabels,
    hasKey: concurrencyKey !== null,
    fairnessLabel: deps.fairnessLabel,
  });
  const subject = `The input of job "${job.name}"`;
  const given = encode(input, { subject, maxBytes: deps.maxValueBytes });
  // A retrigger parses this value again.
  const stored = isJson ? input : decode(given);
  const limits = { host: deps.host, subject: `The schema of the input of job "${job.name}"` };
  return andThen(parseNow(job.input, stored, limits), (parsed): NewRun => {
    if (!parsed.ok) {
      const { ok: _, issues, ...refusal } = parsed;
      throw new ValidationError(`${subject} does not fit its schema`, {
        ...refusal,
        code: "invalid_input",
        issues: issues.map((issue) => explainStored(issue, input)),
      });
    }
    return {
      id: deps.host.newId(),
      jobName: job.name,
      version: job.changes.version,
      aliases,
      schemaPrint,
      payload: given,
      // A schema may fill in the value that it is given, and return that.
      input: isJson && parsed.value === input && JSON.stringify(input) === given
        ? given
        : encode(parsed.value, { subject: `${subject}, as its schema parsed it,`, maxBytes: deps.maxValueBytes }),
      labels: checkedLabels,
      idempotencyKey,
      ...(idempotencyUntil === undefined ? {} : { idempotencyUntil }),
      concurrencyKey,
      coalesce,
      retriggerOf: retry?.retriggerOf ?? null,
      flow,
      schedule: null,
      ...(job.onEnd === null || job.onEnd.statuses.length === 0 ? {} : { onEnd: toNewEnd(job.onEnd) }),
      trace: encodeOrigin(null, by),
    };
  });
}

function toNewEnd({ statuses, job: { name, flow } }: JobEnd): NewEnd {
  return { jobName: name, statuses, finishWithin: flow.finishWithin };
}

/** The output of a schema for labels; labels that are `undefined` are left out. */
export type SchemaLabels = { readonly [key: string]: string | undefined };

/**
 * Checks the labels of a trigger by the engine's own schema.
 *
 * @returns The schema's output, which is stored.
 * @throws {ValidationError} They do not fit, or the schema's output is not labels.
 * @throws {TimeoutError} The schema has not settled after 30 seconds.
 */
export function parseLabels(schema: Schema<unknown, SchemaLabels>, labels: unknown, host: Host): Soon<Labels> {
  return andThen(parseNow(schema, labels, { host, subject: "The schema of the labels" }), (parsed) => {
    if (parsed.ok) return checkLabels(withoutUndefined(parsed.value));
    const { ok: _, issues, ...refusal } = parsed;
    throw new ValidationError("The labels do not fit their schema", {
      ...refusal,
      code: "invalid_input",
      issues: issues.map(({ path, message }) => ({ path: ["labels", ...path], message })),
    });
  });
}

/** The same labels, or a copy without those that are `undefined`; the caller checks the rest. */
function withoutUndefined(labels: unknown): unknown {
  const entries = Object.entries(Object(labels));
  const defined = entries.filter(([, value]) => value !== undefined);
  return defined.length === entries.length ? labels : Object.fromEntries(defined);
}

/** Adds a hint to an issue if the value at its path is stored as a different type. */
function explainStored(issue: Issue, input: unknown): Issue {
  const hint = hintAt(input, issue.path);
  return hint === null ? issue : { ...issue, message: `${issue.message} (${hint})` };
}

function hintAt(input: unknown, path: Issue["path"]): string | null {
  try {
    const given = path.reduce(propertyOf, input);
    if (given instanceof Date) {
      return "a Date is stored as a string: let the schema accept one, with z.coerce.date() or z.iso.datetime()";
    }
    return typeof propertyOf(given, "toJSON") === "function"
      ? `${kindOf(given)} is stored as what its toJSON() returns`
      : null;
  } catch {
    return null; // a getter that throws this time
  }
}

/** Checks which runs with the key count, with durations in milliseconds. `undefined`: any. */
function readIdempotencyUntil(until: unknown, hasKey: boolean): "ended" | "failed" | number | undefined {
  if (until === undefined) return undefined;
  if (!hasKey) throw new ValidationError("idempotencyUntil needs an idempotencyKey");
  if (until === "forever") return undefined;
  const ms = toMs(until);
  if (ms === "ended" || ms === "failed" || isPeriod(ms)) return ms;
  throw new ValidationError(`idempotencyUntil ${IDEMPOTENCY_UNTIL_RULE}`);
}

function checkCoalesce(coalesce: unknown, { concurrencyKey, startAt, delay }: TriggerOptions): void {
  if (coalesce === null) return;
  if (!COALESCE_MODES.some((mode) => mode === coalesce)) {
    throw new ValidationError(`coalesce must be one of ${COALESCE_MODES.join(", ")}`);
  }
  if (concurrencyKey == null) throw new ValidationError("coalesce needs a concurrencyKey");
  if (startAt !== undefined || delay !== undefined) {
    throw new ValidationError("coalesce excludes startAt and delay: the run that the trigger joins may start earlier");
  }
}
