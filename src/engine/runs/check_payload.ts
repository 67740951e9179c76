import type { OutputUnit, Schema as JsonSchema } from "@cfworker/json-schema";
import { ValidationError } from "../../model/error.ts";
import type { Host } from "../../model/host.ts";
import { parse, type Schema, type SchemaIssue } from "../../model/schema.ts";
import type { Signal, Wait } from "../../model/wait.ts";

/**
 * Refuses a signal whose payload does not fit the JSON Schema of its wait, if that is open and has one. The schema of
 * the job itself, which may ask for more, checks the payload when the run resumes.
 *
 * @throws {ValidationError} It does not fit.
 */
export async function checkPayload(
  wait: Pick<Wait, "name" | "status" | "payloadSchema">,
  { payload }: Pick<Signal, "payload">,
  host: Pick<Host, "schedule">,
): Promise<void> {
  if (wait.status !== "pending" || wait.payloadSchema === undefined) return;
  const subject = `The payload of wait "${wait.name}"`;
  const parsed = await parse(await toSchema(wait.payloadSchema as JsonSchema), payload, { host, subject });
  if (parsed.ok) return;
  const { issues, issuesLeftOut } = parsed;
  throw new ValidationError(`${subject} does not fit its schema`, { code: "invalid_input", issues, issuesLeftOut });
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
