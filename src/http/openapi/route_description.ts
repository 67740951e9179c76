import { MAX_RUN_LIMIT, MAX_RUN_OFFSET } from "../../engine/runs/run_filter.ts";
import { MAX_DIGEST_MS, MIN_DIGEST_MS } from "../streams/resume.ts";
import type { ErrorCode } from "../../error.ts";
import { CONDITION_LIST, RUN_STATUSES } from "../../run.ts";
import { conditionSchema, COUNT, INSTANT, type JsonSchema, oneOf, TEXT } from "./json_schema.ts";

/** A parameter of the URL. */
export interface ParameterDescription {
  /** Its name. */
  name: string;
  /** Its schema. */
  schema: JsonSchema;
  /** What it means. */
  description?: string;
  /** Whether the request is refused without it. */
  required?: boolean;
  /** Whether it may be given several times; its schema is that of one. */
  isRepeatable?: boolean;
}

/** What a route takes and answers, for the OpenAPI document. */
export interface RouteDescription {
  /** What it does, in a few words. */
  summary: string;
  /** The parameters of its URL. */
  parameters?: readonly ParameterDescription[];
  /** The schema of its body, by name; left out: it takes none. */
  body?: string;
  /** Whether it can be called without the body. */
  isBodyOptional?: boolean;
  /** The answer: JSON of a schema or a list of it, a stream of events, plain text, or an OpenAPI document. */
  answer: { schema: string } | { listOf: string } | "events" | "text" | "document";
  /** Whether it answers 503 with the same schema. */
  answersUnavailable?: boolean;
  /** The codes of the errors that not every route has. */
  errors?: readonly ErrorCode[];
}

const runId: ParameterDescription = { name: "runId", schema: TEXT, required: true };
const waitId: ParameterDescription = { name: "waitId", schema: TEXT, required: true };
const optionalJob: ParameterDescription = { name: "jobName", schema: TEXT };
const requiredJob: ParameterDescription = { ...optionalJob, required: true };
const scheduleName: ParameterDescription = { name: "name", schema: TEXT, required: true };
const from: ParameterDescription = { name: "from", schema: oneOf(["start", "failure"]) };
const window: ParameterDescription = { name: "window", schema: oneOf(["1h", "24h", "7d"]), required: true };
const lastEventId: ParameterDescription = {
  name: "lastEventId",
  schema: TEXT,
  description: "Where to go on, if the header Last-Event-ID cannot be set",
};
const digestMs: ParameterDescription = {
  name: "digestMs",
  schema: { type: "integer", minimum: MIN_DIGEST_MS, maximum: MAX_DIGEST_MS },
  description: "Sends a summary of each interval of so many milliseconds instead of its events",
};
const anyJob: ParameterDescription = { ...optionalJob, isRepeatable: true };
const listFilter: readonly ParameterDescription[] = [
  anyJob,
  { name: "label", schema: { type: "object" }, description: "label.<key>=<value>; all of several must match" },
];
const limit: ParameterDescription = {
  name: "limit",
  schema: { type: "integer", minimum: 1, maximum: 1_000, default: 50 },
};
const cursor: ParameterDescription = { name: "cursor", schema: TEXT, description: "The next of an earlier page" };
const timelineFrom: ParameterDescription = { name: "from", schema: TEXT, description: "The next of an earlier part" };
const timelineLimit: ParameterDescription = {
  name: "limit",
  schema: { type: "integer", minimum: 1, maximum: 1_000, default: 200 },
};
const since: ParameterDescription = {
  name: "since",
  schema: INSTANT,
  description: "Runs that ended at this instant or later",
};
const search: ParameterDescription = {
  name: "q",
  schema: { ...TEXT, minLength: 1, maxLength: 320 },
  description: "An id, its start or its end, the id of a wait, a key, or a label as <key>=<value>",
  required: true,
};
const runList: readonly ParameterDescription[] = [
  ...listFilter,
  { name: "status", schema: oneOf(RUN_STATUSES), isRepeatable: true },
  ...CONDITION_LIST.map((condition) => ({ name: condition.name, schema: conditionSchema(condition) })),
  { name: "limit", schema: { ...COUNT, maximum: MAX_RUN_LIMIT, default: 50 } },
  { name: "offset", schema: { ...COUNT, maximum: MAX_RUN_OFFSET, default: 0 } },
  { name: "before", schema: TEXT, description: "The id of a run: only runs that were triggered before it" },
  { name: "fields", schema: oneOf(["summary"]), description: "summary: without inputs and outputs" },
];

/** The parameters that several routes take. */
export const PARAMETERS = {
  runId,
  waitId,
  optionalJob,
  requiredJob,
  scheduleName,
  from,
  window,
  lastEventId,
  digestMs,
  listFilter,
  runList,
  anyJob,
  limit,
  cursor,
  timelineFrom,
  timelineLimit,
  since,
  search,
};
