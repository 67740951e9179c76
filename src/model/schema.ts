import { toFailure } from "./to_failure.ts";
import { type Issue, TimeoutError } from "./error.ts";
import type { Host } from "./host.ts";
import { kindOf, propertyOf } from "../values/unknown_values.ts";
import { isPromise } from "../values/at_once.ts";
import { byteLength, tidyText } from "../values/text.ts";

/**
 * A validator of any library that follows Standard Schema, version 1 (https://standardschema.dev): zod, valibot,
 * arktype and others.
 */
export interface Schema<Input = unknown, Output = Input> {
  /** The member that the standard defines. */
  readonly "~standard": {
    /** The version of the standard. */
    readonly version: 1;
    /** The name of the library. */
    readonly vendor: string;
    /** Checks a value and may transform it; sync or async. */
    readonly validate: (
      value: unknown,
      // deno-lint-ignore no-explicit-any -- libraries differ in what else they accept here
      options?: any,
    ) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    /** Describes the schema, in libraries that follow Standard JSON Schema, too. */
    readonly jsonSchema?: {
      /** The JSON Schema of what the schema accepts. */
      // deno-lint-ignore no-explicit-any -- libraries differ in what else they accept here
      readonly input: (options: any) => Record<string, unknown>;
    } | undefined;
    /** The input and output types, for inference only. */
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** The result of a validation. */
export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** One reason why a validator refused a value. */
export interface SchemaIssue {
  /** What is wrong. */
  readonly message: string;
  /** The path to the refused part, outermost first. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** Standard Schemas, by the names of what they check. */
export type Schemas = { readonly [name: string]: Schema };

/** The type that a schema accepts. */
export type SchemaInput<S extends Schema> = NonNullable<S["~standard"]["types"]>["input"];

/** The type that a schema produces. */
export type SchemaOutput<S extends Schema> = NonNullable<S["~standard"]["types"]>["output"];

/** The result of a check. `cause` is what the validator threw, if it did. */
type Parsed<Output = unknown> =
  | { ok: true; value: Output }
  | { ok: false; issues: Issue[]; issuesLeftOut: number; cause?: unknown };

/**
 * The JSON Schema of what a schema accepts, if its library makes one (https://standardschema.dev/json-schema); `null`
 * if it does not, or not for this schema.
 */
export function jsonSchemaOf(schema: Schema): Record<string, unknown> | null {
  try {
    return schema["~standard"].jsonSchema?.input({ target: "draft-2020-12" }) ?? null;
  } catch {
    return null; // the schema has a part that JSON Schema cannot describe
  }
}

// A value of a megabyte can have a hundred thousand issues: the stored ones are limited in number and in size.
const MAX_ISSUES = 20;
const MAX_ISSUES_BYTES = 8_000; // of JSON: at most 8 KiB even when a caller adds "labels" to the front of each path
const MAX_PATH_PARTS = 64;
const MAX_PATH_LENGTH = 256;
const MAX_MESSAGE_LENGTH = 512;

/** The context and the limits of a check. */
export interface ParseLimits {
  /** The timer for the time limit. */
  host: Pick<Host, "schedule">;
  /** Names the schema in an error: `The schema of the input of job "import"`. */
  subject: string;
  /** Ends the check early: it then rejects with the reason of this signal. */
  abortSignal?: AbortSignal;
}

const PARSE_TIMEOUT_MS = 30_000;

/**
 * Checks a value against a schema: the only place where a schema is called. If the schema throws, the result is a
 * refusal too.
 *
 * @throws {TimeoutError} The schema has not settled after 30 seconds.
 */
export async function parse<Output>(
  schema: Schema<unknown, Output>,
  value: unknown,
  limits: ParseLimits,
): Promise<Parsed<Output>> {
  return await parseNow(schema, value, limits);
}

/** As {@linkcode parse}, and answers at once if the schema does: most schemas are synchronous and need no timer. */
export function parseNow<Output>(
  schema: Schema<unknown, Output>,
  value: unknown,
  limits: ParseLimits,
): Parsed<Output> | Promise<Parsed<Output>> {
  try {
    const validating = schema["~standard"].validate(value);
    if (!isPromise(validating)) return toParsed(validating);
    return inTime(validating, limits).then((result) => toParsed(result)).catch(refused);
  } catch (cause) {
    return refused(cause);
  }
}

function toParsed<Output>(result: SchemaResult<Output>): Parsed<Output> {
  return result.issues ? { ok: false, ...keepIssues(result.issues) } : { ok: true, value: result.value };
}

function refused(cause: unknown): Parsed<never> {
  if (cause instanceof CheckEnded) throw cause.cause;
  const message = "the schema could not check this value";
  return { ok: false, issues: [{ path: [], message }], issuesLeftOut: 0, cause: cause ?? toFailure(cause) };
}

/**
 * Checks that something is a schema.
 *
 * @param subject Names it in the message.
 * @throws {TypeError} It is not a Standard Schema.
 */
export function checkSchema(value: unknown, subject: string): void {
  if (typeof propertyOf(propertyOf(value, "~standard"), "validate") === "function") return;
  throw new TypeError(`${subject} must be a Standard Schema (zod 4, valibot, arktype, ...), not ${kindOf(value)}`);
}

/** Wraps the reason why a check was aborted, to tell it from what a schema throws. */
class CheckEnded extends Error {}

async function inTime<T>(checking: PromiseLike<T>, { host, subject, abortSignal }: ParseLimits): Promise<T> {
  const { promise: ended, reject } = Promise.withResolvers<never>();
  const end = (cause: unknown) => reject(new CheckEnded("The check was ended", { cause }));
  const cancelTimer = host.schedule(
    PARSE_TIMEOUT_MS,
    () => end(new TimeoutError(`${subject} has not settled within ${PARSE_TIMEOUT_MS} ms`)),
  );
  const abort = () => end(abortSignal?.reason);
  abortSignal?.addEventListener("abort", abort);
  try {
    if (abortSignal?.aborted) abort();
    return await Promise.race([checking, ended]);
  } finally {
    cancelTimer();
    abortSignal?.removeEventListener("abort", abort);
  }
}

/**
 * The first issues, at most 20 and 8 KiB of JSON, equal ones once. The first one always fits: its path and its message
 * are cut.
 */
function keepIssues(refused: readonly SchemaIssue[]): { issues: Issue[]; issuesLeftOut: number } {
  if (!Array.isArray(refused)) throw new TypeError("The issues of a schema must be an array");
  const issues = new Map<string, Issue>();
  let bytes = 2;
  let examined = 0;
  for (const each of refused) {
    if (issues.size === MAX_ISSUES) break;
    const issue = toIssue(each);
    const text = JSON.stringify(issue);
    if (!issues.has(text)) bytes += byteLength(text) + 1;
    if (bytes > MAX_ISSUES_BYTES) break;
    issues.set(text, issue);
    examined += 1;
  }
  return { issues: [...issues.values()], issuesLeftOut: refused.length - examined };
}

function toIssue({ path, message }: SchemaIssue): Issue {
  return { path: toPath(Array.from(path ?? [])), message: tidyText(String(message), MAX_MESSAGE_LENGTH) };
}

function toPath(parts: NonNullable<SchemaIssue["path"]>): Issue["path"] {
  const path: Issue["path"] = [];
  let left = MAX_PATH_LENGTH;
  for (const part of parts.slice(0, MAX_PATH_PARTS)) {
    const key = typeof part === "object" ? part.key : part;
    const text = tidyText(String(key), left);
    path.push(typeof key === "number" ? key : text);
    left -= text.length;
    if (left <= 0) break;
  }
  return path;
}
