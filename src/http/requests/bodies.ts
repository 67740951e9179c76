import { type BulkRetriggerOptions, type BulkSelection, checkBulk } from "../../engine/bulk/bulk_selection.ts";
import { HoldfastError, ValidationError } from "../../model/error.ts";
import type { BulkOperation } from "../../model/run.ts";
import { parse, type Schema } from "../../model/schema.ts";
import type { Json } from "../../values/json.ts";
import { tidyText } from "../../values/text.ts";
import { isObject } from "../../values/unknown_values.ts";
import { similarNameFinder } from "../similar_name.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import type { BodyName, BodyOf } from "./body_schemas.ts";
import { readJson, type ReadJsonOptions } from "./read_json.ts";

/** The body of a request: what it is, and how it is read. */
export interface Body<T> {
  /** The name of its schema in the OpenAPI document; `null`: the route takes none. */
  readonly schema: string | null;
  /** Whether it may be left out. */
  readonly isOptional?: boolean;
  /**
   * Reads it.
   *
   * @throws {ValidationError} It is not valid.
   */
  read(request: Request, settings: ReadJsonOptions): Promise<T>;
}

/** A body of one of the schemas, which are loaded when one is first needed. */
function body<Name extends BodyName>(schema: Name, isOptional = false): Body<BodyOf<Name>> {
  return {
    schema,
    isOptional,
    read: async (request, settings) => {
      const sent = withoutActor(await readJson(request, { ...settings, isOptional }));
      const { BODIES } = await import("./body_schemas.ts");
      checkFieldNames(sent, Object.keys(BODIES[schema].shape));
      const known = BODIES[schema] as Schema<unknown, BodyOf<Name>>; // the types of one name
      const parsed = await parse(known, sent, { host: settings.host, subject: "The schema of the body" });
      if (parsed.ok) return parsed.value;
      const { issues, issuesLeftOut } = parsed;
      throw new ValidationError("The body is not valid", { issues, issuesLeftOut });
    },
  };
}

/** The body of `POST /trigger`. */
export const TRIGGER = body("TriggerRequest");
/** The body of `POST /signal`. */
export const SIGNAL = body("SignalRequest");
/** The body of `POST /send`. */
export const SEND = body("SendRequest");
/** The body of `POST /jobs/pause`, which may be empty. */
export const NOTE = body("PauseRequest", true);

/** No body: with a `by` it is refused. Any other is ignored, also one that cannot be read. */
export const NO_BODY: Body<void> = {
  schema: null,
  read: async (request, settings) => void await readIgnored(request, settings),
};

/** No body of a retrigger: with a `from` it is refused, too, since the retry would begin at the start. */
export const NO_FROM: Body<void> = {
  schema: null,
  read: async (request, settings) => {
    const body = await readIgnored(request, settings);
    if (typeof body !== "object" || body === null || !Object.hasOwn(body, "from")) return;
    throw new ValidationError('The body has a field "from": give it as a parameter of the URL, such as from=failure');
  },
};

// A larger body is none that was meant to say how or who.
const MAX_IGNORED_BYTES = 4_096;

/** Reads the body of a route that takes none; `null`: there is none, or it cannot be read. */
async function readIgnored(request: Request, { host, limits }: ReadJsonOptions): Promise<Json> {
  if (request.body === null || request.body.locked || request.bodyUsed) return null;
  const read = readJson(request, { host, limits: { ...limits, maxBodyBytes: MAX_IGNORED_BYTES } });
  return withoutActor(
    await read.catch((error) => {
      if (error instanceof HoldfastError) return null;
      throw error;
    }),
  );
}

/** The parsed body of a bulk operation. */
export interface BulkRequest {
  /** Which runs. */
  selection: BulkSelection;
  /** How. */
  options: BulkRetriggerOptions;
}

/**
 * The body of `POST /runs/cancel`, `/runs/retrigger`, `/runs/resume` and `/runs/delete`. An unknown field is refused: ignored, it could
 * select too many runs.
 */
export function bulk(operation: BulkOperation): Body<BulkRequest> {
  const { schema, read } = body(operation === "retrigger" ? "BulkRetriggerRequest" : "BulkRequest");
  return {
    schema,
    read: async (request, settings) => {
      const { runIds, filter, ...options } = withoutUndefined(await read(request, settings));
      // The schema says that one of them is given.
      const selection: BulkSelection = runIds === undefined ? { filter: withoutUndefined(filter!) } : { runIds };
      const { from: _, ...checked }: BulkRetriggerOptions = options;
      checkBulk(selection, checked, "The body");
      return { selection, options };
    },
  };
}

/**
 * Refuses who acts in a body: it would seem to have been taken. The hook `auth.actor` says it.
 *
 * @throws {ValidationError} The body has a field `by`.
 */
function withoutActor<B extends Json>(body: B): B {
  if (typeof body !== "object" || body === null || !Object.hasOwn(body, "by")) return body;
  throw new ValidationError("by is set by the service");
}

/**
 * Unknown fields are ignored, but a misspelled known name is refused: ignored, it could create a second run, or send a
 * message a second time.
 */
function checkFieldNames(body: Json, known: readonly string[]): void {
  if (!isObject(body)) return;
  const findSimilar = similarNameFinder(known);
  for (const name of Object.keys(body)) {
    const similar = findSimilar(name);
    if (similar === null) continue;
    const shown = tidyText(name, MAX_SHOWN_LENGTH);
    throw new ValidationError(`The body has a field "${shown}": did you mean "${similar}"?`);
  }
}

const MAX_SHOWN_LENGTH = 64;
