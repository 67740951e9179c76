import type { OutputUnit, Schema as JsonSchema } from "@cfworker/json-schema";
import { ValidationError } from "../../model/error.ts";
import type { Host } from "../../model/host.ts";
import { waitSchemaOf } from "../../model/job.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { parse, type Schema, type SchemaIssue } from "../../model/schema.ts";
import type { Signal, Wait } from "../../model/wait.ts";
import type { Store } from "../../store/store.ts";

/** What a payload is checked with. */
export interface PayloadChecks {
  /** The jobs whose `waits` have schemas. */
  jobs: JobCatalog;
  /** Has the run of the wait. */
  store: Pick<Store, "readRuns">;
  /** The timer of a schema. */
  host: Pick<Host, "schedule">;
}

/**
 * Refuses a signal whose payload does not fit the schema of its wait, if that is open and has one: that of `waits` of its
 * job, if this engine executes the run; otherwise the JSON Schema that is stored with the wait. The schema that the job's
 * code gives, which may ask for more, checks the payload when the run resumes.
 *
 * @throws {ValidationError} It does not fit.
 */
export async function checkPayload(
  wait: Pick<Wait, "runId" | "name" | "status" | "payloadSchema">,
  { payload }: Pick<Signal, "payload">,
  { jobs, store, host }: PayloadChecks,
): Promise<void> {
  if (wait.status !== "pending") return;
  const schema = await declaredSchema(wait, jobs, store) ??
    (wait.payloadSchema === undefined ? undefined : await toSchema(wait.payloadSchema as JsonSchema));
  if (schema === undefined) return;
  const subject = `The payload of wait "${wait.name}"`;
  const parsed = await parse(schema, payload, { host, subject });
  if (parsed.ok) return;
  const { issues, issuesLeftOut } = parsed;
  throw new ValidationError(`${subject} does not fit its schema`, { code: "invalid_input", issues, issuesLeftOut });
}

/** The schema among the `waits` of the job that executes the run. */
async function declaredSchema(
  { runId, name }: Pick<Wait, "runId" | "name">,
  jobs: JobCatalog,
  store: PayloadChecks["store"],
): Promise<Schema | undefined> {
  if (!jobs.haveWait(name)) return undefined;
  const [run] = await store.readRuns([runId], Infinity);
  const job = run === undefined || run === null ? undefined : jobs.executing(run.jobName, run.version)?.job;
  return job === undefined ? undefined : waitSchemaOf(job, name);
}

/** A JSON Schema as a validator. One that cannot be read takes every value. */
async function toSchema(schema: JsonSchema): Promise<Schema> {
  const { Validator } = await import("@cfworker/json-schema"); // loaded when first needed
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
