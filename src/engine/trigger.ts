import { type Issue, ValidationError } from "../error.ts";
import type { Host } from "../host.ts";
import { decode, encode } from "../json.ts";
import { kindOf } from "../kind_of.ts";
import { checkLabels, checkName } from "../name.ts";
import { type Coalesce, COALESCE_MODES, type Disposition, type Labels, type Run } from "../run.ts";
import { parse, type Schema } from "../schema.ts";
import type { Job } from "../job.ts";
import type { NewRun } from "../store.ts";

/** How a run is triggered, besides its input. */
export interface TriggerOptions<L = Labels> {
  /** A run of the same job with this key is answered instead of a new one, as long as it exists. 1 to 255 characters. */
  idempotencyKey?: string;
  /** Runs with this key, of any job, are executed one after another. 1 to 255 characters. */
  concurrencyKey?: string;
  /** What to do when runs of this job and key exist already. Needs a `concurrencyKey`. Default: add another run. */
  coalesce?: Coalesce;
  /** Key and value pairs for filters and access rules; up to 64. The engine's `labels` schema says which. */
  labels?: L;
}

/** The run that a trigger made or found, and which of the two. */
export type TriggerResult = Run & {
  /** Whether the run is new. */
  disposition: Disposition;
};

/** Is asked while a run is triggered. What it throws refuses the trigger: nothing is stored then, and nothing told. */
export interface TriggerGuard {
  /**
   * Before a run is added.
   *
   * @returns The run to add: the same one, or with other keys.
   */
  beforeAdding(run: NewRun): Promise<NewRun>;
  /**
   * Before the trigger joins a run that was found, or is answered with it. It throws if that must not be. `null`: any
   * run will do.
   */
  beforeJoining: ((found: Run) => Promise<void>) | null;
}

/** What {@linkcode newRun} works with. */
export interface NewRunDeps {
  /** Time and ids. */
  host: Host;
  /** How large an input may be, in bytes of JSON. */
  maxValueBytes: number;
}

/**
 * Checks a trigger and makes the run that it asks for.
 *
 * @throws {ValidationError} The input does not fit the job's schema, or an option is not one.
 * @throws {SerializationError} The input, as given or as parsed, cannot be kept as JSON.
 */
export async function newRun(
  job: Job,
  input: unknown,
  options: TriggerOptions & Partial<Pick<NewRun, "retriggerOf">>,
  deps: NewRunDeps,
): Promise<NewRun> {
  const { idempotencyKey = null, concurrencyKey = null, coalesce = null, labels = {} } = options;
  if (idempotencyKey !== null) checkName(idempotencyKey, "idempotencyKey");
  if (concurrencyKey !== null) checkName(concurrencyKey, "concurrencyKey");
  checkCoalesce(coalesce, concurrencyKey);
  const checkedLabels = checkLabels(labels);
  const subject = `The input of job "${job.name}"`;
  const payload = encode(input, { subject, maxBytes: deps.maxValueBytes });
  // As every execution, and a retrigger, will find it.
  const stored = decode(payload);
  const parsed = await parse(job.input, stored, {
    host: deps.host,
    subject: `The schema of the input of job "${job.name}"`,
  });
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
    payload,
    input: encode(parsed.value, { subject: `${subject}, as its schema parsed it,`, maxBytes: deps.maxValueBytes }),
    labels: checkedLabels,
    idempotencyKey,
    concurrencyKey,
    coalesce,
    retriggerOf: options.retriggerOf ?? null,
  };
}

/** What a schema for labels answers; those that are `undefined` are left out. */
export type SchemaLabels = { readonly [key: string]: string | undefined };

/**
 * Checks the labels of a trigger by the engine's own schema.
 *
 * @returns What the schema made of them: this is stored.
 * @throws {ValidationError} They do not fit, or the schema makes something else of them than labels.
 * @throws {TimeoutError} The schema has not settled after 30 seconds.
 */
export async function parseLabels(schema: Schema<unknown, SchemaLabels>, labels: unknown, host: Host): Promise<Labels> {
  const parsed = await parse(schema, labels, { host, subject: "The schema of the labels" });
  if (parsed.ok) return checkLabels(withoutUndefined(parsed.value));
  const { ok: _, issues, ...refusal } = parsed;
  throw new ValidationError("The labels do not fit their schema", {
    ...refusal,
    code: "invalid_input",
    issues: issues.map(({ path, message }) => ({ path: ["labels", ...path], message })),
  });
}

/** The same labels, or a copy if some of them are `undefined`: what else they may be is for the caller to check. */
function withoutUndefined(labels: unknown): unknown {
  const entries = Object.entries(Object(labels));
  const defined = entries.filter(([, value]) => value !== undefined);
  return defined.length === entries.length ? labels : Object.fromEntries(defined);
}

/** Adds to an issue that the value at its path is stored as something else, if it is. */
function explainStored(issue: Issue, input: unknown): Issue {
  const hint = hintAt(input, issue.path);
  return hint === null ? issue : { ...issue, message: `${issue.message} (${hint})` };
}

function hintAt(input: unknown, path: Issue["path"]): string | null {
  try {
    const given = path.reduce<unknown>((value, key) => (value as Record<string, unknown> | null)?.[key], input);
    if (given instanceof Date) {
      return "a Date is stored as a string: let the schema accept one, with z.coerce.date() or z.iso.datetime()";
    }
    const { toJSON } = Object(given) as { toJSON?: unknown };
    return typeof toJSON === "function" ? `${kindOf(given)} is stored as what its toJSON() returns` : null;
  } catch {
    return null; // it could be read once, and throws now
  }
}

function checkCoalesce(coalesce: unknown, concurrencyKey: string | null): void {
  if (coalesce === null) return;
  if (!COALESCE_MODES.includes(coalesce as Coalesce)) {
    throw new ValidationError(`coalesce must be one of ${COALESCE_MODES.join(", ")}`);
  }
  if (concurrencyKey === null) throw new ValidationError("coalesce needs a concurrencyKey");
}
