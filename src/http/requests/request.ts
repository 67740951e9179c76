import { checkRunFilter, checkSize } from "../../engine/runs/run_filter.ts";
import type { SeriesQuery } from "../../engine/operate/statistics/series.ts";
import type { FailuresQuery } from "../../engine/operate/failure_groups.ts";
import type { OpenWaitsQuery } from "../../engine/operate/open_waits.ts";
import type { TimelineOptions } from "../../engine/operate/timeline.ts";
import type { TriggerOptions } from "../../engine/triggers/new_run.ts";
import {
  type BulkFilter,
  type BulkRetriggerOptions,
  type BulkSelection,
  checkBulk,
} from "../../engine/bulk/bulk_selection.ts";
import type { RetriggerOptions } from "../../engine/triggers/retrigger_options.ts";
import { HoldfastError, ValidationError } from "../../error.ts";
import type { Host } from "../../host.ts";
import type { Json } from "../../values/json.ts";
import { type BulkOperation, CONDITION_LIST, type ListFilter, NO_RUN, type RunFilter } from "../../run.ts";
import { checkName } from "../../values/name.ts";
import { parse, type Schema } from "../../schema.ts";
import { tidyText } from "../../values/text.ts";
import type { Signal } from "../../wait.ts";
import type { RouteCall } from "../route_call.ts";
import { withoutUndefined } from "../without_undefined.ts";
import { readJson } from "./read_json.ts";
import type { ListView } from "../lists/list_view.ts";
import { similarNameFinder } from "../similar_name.ts";

/** The parsed body of `POST /trigger`. */
export interface TriggerRequest extends TriggerOptions {
  /** The name of the job. */
  jobName: string;
  /** The input: any JSON, or `undefined` if there is none. */
  input?: Json | undefined;
}

/** The parsed body of a bulk operation. */
export interface BulkRequest {
  /** Which runs. */
  selection: BulkSelection;
  /** How. */
  options: BulkRetriggerOptions;
}

/**
 * Reads the URL of a request.
 *
 * @throws {ValidationError} It cannot be parsed: a server may build it from untrusted data, such as the Host header.
 */
export function readUrl(request: Request): URL {
  const url = URL.parse(request.url);
  if (url === null) throw new ValidationError("The URL of the request cannot be parsed");
  // A server that builds the URL from an unchecked Host would let it set the path (RFC 9112, section 3.2).
  if (/[/\\?#]/.test(request.headers.get("host") ?? "")) {
    throw new ValidationError("The Host header of the request is not valid");
  }
  return url;
}

/**
 * Reads the id of the run.
 *
 * @throws {ValidationError} The parameter is missing, empty or given twice.
 */
export function readRunId(query: URLSearchParams): string {
  return readParameter(query, "runId");
}

/** Reads the id of the wait, as {@linkcode readRunId} does. */
export function readWaitId(query: URLSearchParams): string {
  return readParameter(query, "waitId");
}

/** Reads the name of the schedule, as {@linkcode readRunId} does. */
export function readScheduleName(query: URLSearchParams): string {
  return readParameter(query, "name");
}

/** Reads the name of the job, as {@linkcode readRunId} does. */
export function readJobName(query: URLSearchParams): string {
  return readParameter(query, "jobName");
}

/**
 * Reads which series is asked for. The engine checks it.
 *
 * @throws {ValidationError} A parameter is missing or given twice.
 */
export function readSeriesQuery(query: URLSearchParams): SeriesQuery {
  const window = readParameter(query, "window") as SeriesQuery["window"]; // the engine checks it
  return { window, ...withoutUndefined({ jobName: readOptional(query, "jobName") }) };
}

/**
 * Reads the body of `POST /jobs/pause`, which may be empty.
 *
 * @throws {ValidationError} It is not valid.
 */
export async function readNote({ request, settings }: RouteCall): Promise<string | undefined> {
  const body = await readJson(request, { ...settings, isOptional: true });
  const { noteBody } = await import("./body_schemas.ts");
  checkFieldNames(body, ["note"]);
  return (await check<{ note?: string | undefined }>(body, noteBody, settings.host)).note;
}

function readParameter(query: URLSearchParams, name: string): string {
  const value = readOptional(query, name);
  if (value === undefined || value === "") throw new ValidationError(`The parameter ${name} is missing`);
  return value;
}

/**
 * Reads where a retrigger begins.
 *
 * @throws {ValidationError} The parameter is neither `start` nor `failure`.
 */
export function readFrom(query: URLSearchParams): RetriggerOptions["from"] {
  const from = readOptional(query, "from");
  if (from === undefined || from === "start" || from === "failure") return from;
  throw new ValidationError('The parameter from must be "start" or "failure"');
}

/**
 * Refuses a `from` in the body of a retrigger: ignored, the retry would begin at the start. Any other body is ignored,
 * also one that cannot be read.
 *
 * @throws {ValidationError} The body is an object with a `from`.
 */
export async function checkNoFrom({ request, settings: { host, limits } }: RouteCall): Promise<void> {
  if (request.body === null || request.bodyUsed) return;
  const read = readJson(request, { host, limits: { ...limits, maxBodyBytes: MAX_IGNORED_BYTES } });
  const body = await read.catch((error) => {
    if (error instanceof HoldfastError) return null;
    throw error;
  });
  if (typeof body !== "object" || body === null || !Object.hasOwn(body, "from")) return;
  throw new ValidationError('The body has a field "from": give it as a parameter of the URL, such as from=failure');
}

// A larger body is none that was meant to say where a retrigger begins.
const MAX_IGNORED_BYTES = 4_096;

/**
 * Reads the filter of a list. Two different values for one label match nothing.
 *
 * @throws {ValidationError} A parameter is not valid.
 */
export function readRunFilter(query: URLSearchParams): RunFilter {
  return readFilter(query, {
    status: readList(query, "status") as RunFilter["status"], // checked below
    ...Object.fromEntries(CONDITION_LIST.map(({ name }) => [name, readOptional(query, name)])),
    limit: readInteger(query, "limit"),
    offset: readInteger(query, "offset"),
  });
}

/**
 * Reads how a list of runs is to be shown.
 *
 * @throws {ValidationError} A parameter is not valid.
 */
export function readListView(query: URLSearchParams): ListView {
  const [before, fields] = [readOptional(query, "before"), readOptional(query, "fields")];
  if (fields !== undefined && fields !== "summary") {
    throw new ValidationError('The parameter fields can only be "summary"');
  }
  if (before !== undefined) checkName(before, "before");
  return { ...withoutUndefined({ before }), isSummary: fields === "summary" };
}

/** Reads which part of a timeline is asked for. */
export function readTimelineOptions(query: URLSearchParams): TimelineOptions {
  return withoutUndefined({ from: readOptional(query, "from"), limit: readInteger(query, "limit") });
}

/** Reads which open waits are asked for. */
export function readOpenWaitsQuery(query: URLSearchParams): OpenWaitsQuery {
  const { jobName, labels } = readListFilter(query);
  const page = { limit: readInteger(query, "limit"), cursor: readOptional(query, "cursor") };
  return withoutUndefined({ jobName, labels, ...page });
}

/** Reads which failures are asked for. */
export function readFailuresQuery(query: URLSearchParams): FailuresQuery {
  return withoutUndefined({ jobName: readList(query, "jobName"), since: readOptional(query, "since") });
}

/** Reads what is searched for; `checkSearch()` checks it. */
export function readSearch(query: URLSearchParams): string {
  return readOptional(query, "q") ?? "";
}

/** Reads the filter of a stream, as {@linkcode readRunFilter} does. */
export function readListFilter(query: URLSearchParams): ListFilter {
  return readFilter(query, {});
}

/**
 * Reads the body of `POST /trigger`.
 *
 * @throws {ValidationError} It is not valid.
 */
export async function readTrigger({ request, settings }: RouteCall): Promise<TriggerRequest> {
  const body = await readJson(request, settings);
  const { triggerBody, TRIGGER_FIELDS } = await import("./body_schemas.ts"); // zod is loaded when first needed
  checkFieldNames(body, TRIGGER_FIELDS);
  return await check(body, triggerBody, settings.host);
}

/**
 * Reads the body of `POST /signal`.
 *
 * @throws {ValidationError} It is not valid.
 */
export async function readSignal({ request, settings }: RouteCall): Promise<Signal> {
  const body = await readJson(request, settings);
  const { signalBody } = await import("./body_schemas.ts");
  return await check(body, signalBody, settings.host);
}

/**
 * Reads the body of `POST /runs/cancel`, `/runs/retrigger` and `/runs/delete`.
 *
 * @throws {ValidationError} It is not valid, or has an unknown field: ignored, it could select too many runs.
 */
export async function readBulk(operation: BulkOperation, { request, settings }: RouteCall): Promise<BulkRequest> {
  const body = await readJson(request, settings);
  const { bulkBody, bulkRetriggerBody } = await import("./body_schemas.ts");
  const schema = operation === "retrigger" ? bulkRetriggerBody : bulkBody;
  const { runIds, filter, from, ...options } = withoutUndefined(await check<BulkBody>(body, schema, settings.host));
  // The schema says that one of them is given.
  const selection: BulkSelection = runIds === undefined ? { filter: withoutUndefined(filter!) } : { runIds };
  checkBulk(selection, options, "The body");
  return { selection, options: { ...options, ...withoutUndefined({ from }) } };
}

/** A parsed body: it has either `runIds` or `filter`. */
interface BulkBody extends BulkRetriggerOptions {
  runIds?: string[] | undefined;
  filter?: BulkFilter | undefined;
}

/** Unknown fields are ignored, but a misspelled known name is refused: ignored, it could create a second run. */
function checkFieldNames(body: Json, known: readonly string[]): void {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return;
  const findSimilar = similarNameFinder(known);
  for (const name of Object.keys(body)) {
    const similar = findSimilar(name);
    if (similar === null) continue;
    const shown = tidyText(name, MAX_SHOWN_LENGTH);
    throw new ValidationError(`The body has a field "${shown}": did you mean "${similar}"?`);
  }
}

const MAX_SHOWN_LENGTH = 64;

async function check<T>(body: Json, schema: Schema<unknown, T>, host: Host): Promise<T> {
  const parsed = await parse(schema, body, { host, subject: "The schema of the body" });
  if (parsed.ok) return parsed.value;
  const { issues, issuesLeftOut } = parsed;
  throw new ValidationError("The body is not valid", { issues, issuesLeftOut });
}

function readFilter(query: URLSearchParams, more: RunFilter): RunFilter {
  const labels = [...query].filter(([name]) => name.startsWith(LABEL)).map(([name, value]) =>
    [name.slice(LABEL.length), value] as const
  );
  checkSize(query.getAll("jobName").length, labels.length);
  // fromEntries() makes own properties of all keys, `__proto__` included.
  const byKey = Object.fromEntries(labels);
  const filter = checkRunFilter(withoutUndefined({
    ...more,
    jobName: readList(query, "jobName"),
    labels: labels.length === 0 ? undefined : byKey,
  }));
  const isContradiction = labels.some(([key, value]) => byKey[key] !== value);
  return isContradiction ? { ...filter, ...NO_RUN } : filter;
}

const LABEL = "label.";

function readList(query: URLSearchParams, name: string): string | string[] | undefined {
  const values = query.getAll(name);
  return values.length > 1 ? values : values[0];
}

function readInteger(query: URLSearchParams, name: string): number | undefined {
  const text = readOptional(query, name);
  if (text === undefined) return undefined;
  if (!/^\d+$/.test(text)) throw new ValidationError(`The parameter ${name} must be an integer`);
  return Number(text);
}

function readOptional(query: URLSearchParams, name: string): string | undefined {
  const values = query.getAll(name);
  if (values.length > 1) throw new ValidationError(`The parameter ${name} may be given only once`);
  return values[0];
}
