import type { OutputUnit, Schema as JsonSchema, Validator as JsonValidator } from "@cfworker/json-schema";
import { ValidationError } from "../../model/error.ts";
import type { Host } from "../../model/host.ts";
import { waitSchemaOf } from "../../model/job.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { parseNow, type Schema, type SchemaIssue } from "../../model/schema.ts";
import type { Signal, Wait } from "../../model/wait.ts";
import { andThen, type Soon } from "../../values/at_once.ts";

/** What a payload is checked with. */
interface PayloadChecks {
  /** The jobs whose `waits` have schemas. */
  jobs: JobCatalog;
  /** Finds the run of the wait. */
  findRun: (runId: string) => Soon<{ jobName: string; version: number } | null>;
  /** The timer of a schema. */
  host: Pick<Host, "schedule">;
}

/**
 * Refuses a signal whose payload does not fit the schema of its wait, if that is open and has one: that of `waits` of its
 * job, if this engine executes the run; otherwise the JSON Schema that is stored with the wait. The schema that the job's
 * code gives, which may ask for more, checks the payload when the run resumes.
 *
 * @returns At once, if the run and the schema answer at once and {@linkcode loadValidator} was called before.
 * @throws {ValidationError} It does not fit.
 */
export function checkPayload(
  wait: Pick<Wait, "runId" | "name" | "status" | "payloadSchema">,
  { payload }: Pick<Signal, "payload">,
  { jobs, findRun, host }: PayloadChecks,
): Soon<void> {
  if (wait.status !== "pending") return;
  const subject = `The payload of wait "${wait.name}"`;
  const schema = andThen(declaredSchema(wait, jobs, findRun), (declared) => declared ?? storedSchema(wait));
  return andThen(schema, (schema) =>
    schema && andThen(parseNow(schema, payload, { host, subject }), (parsed) => {
      if (parsed.ok) return;
      const { issues, issuesLeftOut } = parsed;
      throw new ValidationError(`${subject} does not fit its schema`, { code: "invalid_input", issues, issuesLeftOut });
    }));
}

/** The schema among the `waits` of the job that executes the run. */
function declaredSchema(
  { runId, name }: Pick<Wait, "runId" | "name">,
  jobs: JobCatalog,
  findRun: PayloadChecks["findRun"],
): Soon<Schema | undefined> {
  if (!jobs.haveWait(name)) return undefined;
  return andThen(findRun(runId), (run) => {
    const job = run === null ? undefined : jobs.executing(run.jobName, run.version)?.job;
    return job === undefined ? undefined : waitSchemaOf(job, name);
  });
}

let loaded: typeof JsonValidator | null = null;

/** Loads what checks values against JSON Schemas, unless it is there. */
export function loadValidator(): Soon<typeof JsonValidator> {
  return loaded ?? import("@cfworker/json-schema").then(({ Validator }) => loaded = Validator);
}

/** The JSON Schema that is stored with a wait. */
function storedSchema({ payloadSchema }: Pick<Wait, "payloadSchema">): Soon<Schema | undefined> {
  if (payloadSchema === undefined) return undefined;
  return andThen(loadValidator(), (Validator) => toSchema(payloadSchema as JsonSchema, Validator));
}

/** A JSON Schema as a validator. One that cannot be read takes every value. */
function toSchema(schema: JsonSchema, Validator: typeof JsonValidator): Schema {
  const validate = (value: unknown) => {
    try {
      const { valid, errors } = new Validator(withoutStrict(schema), "2020-12").validate(value);
      return valid ? { value } : { issues: mostExact(errors).map(toIssue) };
    } catch {
      return { value }; // such as a pattern that JavaScript does not have
    }
  };
  return { "~standard": { version: 1, vendor: "json-schema", validate } };
}

// The validator has rules for these that refuse what schemas take: `https://de.wikipedia.org/wiki/Käse`, `PT1.5S`.
const STRICT_FORMATS: unknown[] = ["uri", "duration"];

function withoutStrict(schema: JsonSchema): JsonSchema {
  return JSON.parse(
    JSON.stringify(schema),
    (key, value) => key === "format" && STRICT_FORMATS.includes(value) ? undefined : value,
  );
}

/** The errors without those that only say that there is another one inside, which then is the next one. */
function mostExact(errors: readonly OutputUnit[]): readonly OutputUnit[] {
  return errors.filter(({ keywordLocation }, at) => !errors[at + 1]?.keywordLocation.startsWith(`${keywordLocation}/`));
}

/** The location is a JSON Pointer in a fragment (RFC 6901, section 6). */
function toIssue({ instanceLocation, error }: OutputUnit): SchemaIssue {
  const path = instanceLocation.split("/").slice(1).map((part) =>
    decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")
  );
  return { path, message: error };
}
