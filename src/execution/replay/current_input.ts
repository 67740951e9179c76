import { type Issue, ValidationError } from "../../model/error.ts";
import { retryStoreCall } from "../../events/retry_store_call.ts";
import { decode, type Json, type JsonText } from "../../values/json.ts";
import { parse } from "../../model/schema.ts";
import { toFailure } from "../../model/to_failure.ts";
import type { Execution } from "../execution.ts";

/** The input for the job's function, or why the stored one does not fit any more. */
export type CurrentInput = { input: JsonText | null } | { refusal: string; issues: Issue[] };

/** Whether a run has the input for the code that executes it: one of the same schema and, for `upgradeInput`, version. */
export function isInputCurrent({ claim, definition: { schemaPrint, job: { changes } } }: Execution): boolean {
  const { version, upgradeInput, recheckInput } = changes;
  if (!recheckInput) return true;
  const isOfVersion = claim.version === version;
  if (schemaPrint === null || claim.schemaPrint === null) return isOfVersion;
  return claim.schemaPrint === schemaPrint && (isOfVersion || upgradeInput === null);
}

/**
 * The input of a run for code with another schema. The stored input is upgraded once, and the result is stored beside
 * it: what was valid at the trigger (a date in the future, a free name) may not be so at each claim.
 */
export async function upgradeInput(execution: Execution): Promise<CurrentInput> {
  const { claim, definition, deps, abortSignal } = execution;
  const { version } = definition.job.changes;
  const print = `${definition.schemaPrint ?? "no print"}, version ${version}`;
  const call = <T>(read: () => Promise<T>) => retryStoreCall(read, deps, abortSignal);
  const stored = await call(() => deps.store.getInput(claim.run.id, print));
  if (stored !== null) return stored;
  const state = await call(() => deps.store.getRunState(claim.run.id));
  const upgraded = await upgrade(execution, decode(state?.run.payload ?? null));
  if ("refusal" in upgraded) return upgraded;
  return { input: await execution.write(() => deps.store.saveInput(execution.lease, print, upgraded.input)) };
}

async function upgrade(execution: Execution, payload: Json | undefined): Promise<CurrentInput> {
  const { claim: { input, version }, definition: { job }, deps } = execution;
  const stored = decode(input);
  const subject = `The input of job "${job.name}"`;
  const encode = (value: unknown) => execution.encode(value, `${subject}, as upgraded,`);
  if (job.changes.upgradeInput) {
    try {
      return { input: encode(await job.changes.upgradeInput(stored ?? null, { payload: payload ?? null, version })) };
    } catch (error) {
      const { name, message } = toFailure(error);
      const issues = error instanceof ValidationError ? error.issues : [];
      return { refusal: `upgradeInput() threw ${name}: ${message}`, issues: [...issues ?? []] };
    }
  }
  const parsed = await parse(job.input, payload, {
    host: deps.host,
    subject: `The schema of the input of job "${job.name}"`,
  });
  if (!parsed.ok) {
    return { refusal: `the input does not fit its schema any more: ${show(parsed.issues)}`, issues: parsed.issues };
  }
  // Read as JSON: an added `Date` is a string, as it is when a trigger parses.
  return { input: encode(withAdded(stored, decode(encode(parsed.value)))) };
}

/** The stored value, with the fields that only the new one has; also in the items of lists of the same length. */
function withAdded(stored: Json | undefined, parsed: Json | undefined): Json | undefined {
  if (stored === undefined) return parsed;
  if (Array.isArray(stored) && Array.isArray(parsed) && stored.length === parsed.length) {
    return stored.map((item, at) => withAdded(item, parsed[at]) ?? null);
  }
  if (!isObject(stored) || !isObject(parsed)) return stored;
  const entries = Object.entries(parsed).map(([key, value]): [string, Json] => [
    key,
    Object.hasOwn(stored, key) ? withAdded(stored[key], value) ?? null : value,
  ]);
  return { ...stored, ...Object.fromEntries(entries) };
}

function isObject(value: Json | undefined): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function show(issues: readonly Issue[]): string {
  return issues.map(({ path, message }) => path.length === 0 ? message : `${path.join(".")}: ${message}`).join("; ");
}
