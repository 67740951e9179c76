import { checkRunFilter, checkSize, MAX_RUN_LIMIT, MAX_RUN_OFFSET } from "../../engine/runs/run_filter.ts";
import { ValidationError } from "../../model/error.ts";
import { type Cursor, parseCursor } from "../../model/journal.ts";
import {
  CONDITION_LIST,
  CONDITIONS,
  type ListFilter,
  NO_RUN,
  type RetriggerFrom,
  RUN_STATUSES,
  type RunFilter,
} from "../../model/run.ts";
import { checkInteger } from "../../values/integer.ts";
import { checkName } from "../../values/name.ts";
import { conditionSchema, COUNT, FLAG, INSTANT, type JsonSchema, oneOf, TEXT } from "../openapi/json_schema.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import { toMs } from "../../values/duration.ts";
import { tidyText } from "../../values/text.ts";
import { similarNameFinder } from "../similar_name.ts";

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

/** Parameters of the URL: what they are, and how they are read. */
export interface Query<T> {
  /** What they are. */
  readonly parameters: readonly ParameterDescription[];
  /**
   * Reads them.
   *
   * @throws {ValidationError} One is missing, given twice, or not valid.
   */
  read(query: URLSearchParams, request: Request): T;
}

type All<Queries> = Queries extends readonly [Query<infer One>, ...infer Others] ? One & All<Others> : unknown;

/** The parameters of several queries, which are read in this order. */
export function all<const Queries extends readonly Query<object>[]>(...queries: Queries): Query<All<Queries>> {
  return {
    parameters: queries.flatMap(({ parameters }) => parameters),
    read: (query, request) => Object.assign({}, ...queries.map((each) => each.read(query, request))),
  };
}

/** No parameters. */
export const NO_QUERY: Query<object> = { parameters: [], read: () => ({}) };

type More = Omit<ParameterDescription, "name" | "schema" | "required">;

/** A parameter that the request is refused without. */
export function required<Name extends string, T extends string = string>(
  name: Name,
  schema: JsonSchema = TEXT,
): Query<{ [N in Name]: T }> {
  const read = (query: URLSearchParams) => {
    const value = readText(query, name);
    if (value === undefined || value === "") throw new ValidationError(`The parameter ${name} is missing`);
    return { [name]: value } as { [N in Name]: T }; // a T that is more than a string is checked by the engine
  };
  return { parameters: [{ name, schema, required: true }], read };
}

/** A parameter that may be left out. */
export function optional<Name extends string, T = string>(
  name: Name,
  schema: JsonSchema = TEXT,
  more: More = {},
  readValue: (query: URLSearchParams, name: string) => T | undefined = readText as never, // of the default for T
): Query<{ [N in Name]?: T }> {
  const read = (query: URLSearchParams) => {
    const value = readValue(query, name);
    return (value === undefined ? {} : { [name]: value }) as { [N in Name]?: T };
  };
  return { parameters: [{ name, schema, ...more }], read };
}

/** One of some strings; it may be left out. */
export function choice<Name extends string, const T extends string>(
  name: Name,
  choices: readonly T[],
  more: More = {},
): Query<{ [N in Name]?: T }> {
  return optional(name, oneOf(choices), more, (query) => {
    const text = readText(query, name);
    const chosen = choices.find((one) => one === text);
    if (text === undefined || chosen !== undefined) return chosen;
    throw new ValidationError(`The parameter ${name} must be ${choices.join(" or ")}`);
  });
}

/** The id of a run. */
export const RUN_ID = required("runId");
/** The run to which a message is sent, unless the body names its job and its key. */
export const SENT_TO = optional("runId", TEXT, { description: "Left out if the body has jobName and key" });
/** Where a list that has pages continues. */
export const CURSOR = optional("cursor", TEXT, { description: "The next of an earlier page" });
/** Where a retry begins. */
export const FROM: Query<{ from?: RetriggerFrom }> = choice("from", ["start", "failure"]);
/** The names of jobs. */
export const JOBS = optional("jobName", TEXT, { isRepeatable: true }, readList);
/** What is searched for: the engine checks it. */
export const SEARCH: Query<{ q: string }> = {
  parameters: [{
    name: "q",
    schema: { ...TEXT, minLength: 1, maxLength: 320 },
    description: "An id, its start or its end, the id of a wait, a key, or a label as <key>=<value>",
    required: true,
  }],
  read: (query) => ({ q: readText(query, "q") ?? "" }),
};
/** From which instant on. */
export const SINCE = optional("since", INSTANT, { description: "Runs that ended at this instant or later" });

/** A limit, 1 to 1,000. Without a default a list has none. */
export function limit(defaultLimit?: number): Query<{ limit?: number }> {
  const schema = withoutUndefined({ type: "integer", minimum: 1, maximum: 1_000, default: defaultLimit });
  return optional("limit", schema, {}, (query) => {
    const limit = readInteger(query, "limit");
    if (limit !== undefined) checkInteger(limit, "limit", 1, 1_000);
    return limit;
  });
}

/** A duration: milliseconds, or with a unit. */
export function milliseconds<Name extends string>(
  name: Name,
  least: number,
  most: number,
  { default: defaultMs, description = 'Milliseconds, or a duration such as "30s"' }: {
    default?: number;
    description?: string;
  },
): Query<{ [N in Name]?: number }> {
  const integer = { type: "integer", minimum: least, maximum: most };
  const schema = withoutUndefined({ anyOf: [integer, TEXT], default: defaultMs });
  return optional(name, schema, { description }, (query) => {
    const text = readText(query, name);
    if (text === undefined) return undefined;
    const ms = /^\d+$/.test(text) ? Number(text) : toMs(text);
    if (typeof ms === "number" && ms >= least && ms <= most) return ms;
    throw new ValidationError(
      `The parameter ${name} must be ${least} to ${most} milliseconds, or such a duration: 30s`,
    );
  });
}

const LABELS = {
  name: "label",
  schema: { type: "object" },
  description: "label.<key>=<value>; all of several must match",
};

/** The filter of a stream. Two different values for one label match nothing. */
export const LIST_FILTER: Query<{ filter: ListFilter }> = {
  parameters: [...JOBS.parameters, LABELS],
  read: (query) => ({ filter: readFilter(query, {}) }),
};

const STATUSES = optional("status", oneOf(RUN_STATUSES), { isRepeatable: true }, readStatuses);

/** The filter of the children of a run. */
export const CHILD_FILTER = all(STATUSES, optional("held", conditionSchema(CONDITIONS.held), {}, readFlag));

/** The filter of a list, and its page. */
export const RUN_FILTER: Query<{ filter: RunFilter }> = {
  parameters: [
    ...LIST_FILTER.parameters,
    ...STATUSES.parameters,
    ...CONDITION_LIST.map((condition) => ({ name: condition.name, schema: conditionSchema(condition) })),
    { name: "limit", schema: { ...COUNT, maximum: MAX_RUN_LIMIT, default: 50 } },
    { name: "offset", schema: { ...COUNT, maximum: MAX_RUN_OFFSET, default: 0 } },
  ],
  read: (query) => ({
    filter: readFilter(query, {
      status: readStatuses(query),
      ...Object.fromEntries(
        CONDITION_LIST.map(({ name, by }) => [name, by === "has" ? readFlag(query, name) : readText(query, name)]),
      ),
      limit: readInteger(query, "limit"),
      offset: readInteger(query, "offset"),
    }),
  }),
};

/** How a list of runs is shown: only those before another one, without inputs and outputs, not counted. */
export const LIST_VIEW = all(
  optional("before", TEXT, { description: "The id of a run: only runs that were triggered before it" }, (query) => {
    const before = readText(query, "before");
    if (before !== undefined) checkName(before, "before");
    return before;
  }),
  choice("fields", ["summary"], { description: "summary: without inputs and outputs" }),
  optional("total", { ...FLAG, default: true }, { description: "false: the runs are not counted" }, readFlag),
);

/** How the client of an event stream resumes, and receives it. */
export interface Resume {
  /** The last id that it has received; `null`: it starts anew. */
  cursor: Cursor | null;
  /** Whether the stream sends it ids. */
  hasIds: boolean;
  /** How often it is sent a summary instead of events, in milliseconds; `null`: it is sent events. */
  digestMs: number | null;
}

/**
 * Reads how the client of an event stream resumes. The stream sends ids if the client reads event streams (every
 * `EventSource` says so in `Accept`), or has received one before: as the header `Last-Event-ID`, or as `lastEventId`
 * of the query.
 */
function readResume(request: Request, query: URLSearchParams): Resume {
  const id = request.headers.get("last-event-id") ?? query.get("lastEventId");
  const readsEvents = request.headers.get("accept")?.toLowerCase().includes("text/event-stream") ?? false;
  return { cursor: parseCursor(id), hasIds: readsEvents || id !== null, digestMs: null };
}

/** How the client of an event stream resumes. */
export const RESUME: Query<{ resume: Resume }> = {
  parameters: [{
    name: "lastEventId",
    schema: TEXT,
    description: "Where to go on, if the header Last-Event-ID cannot be set",
  }],
  read: (query, request) => ({ resume: readResume(request, query) }),
};

const DIGEST = milliseconds("digestMs", 100, 60_000, {
  description: "Sends a summary of each interval of so many milliseconds instead of its events",
});

/** The same for a stream that can be sent as summaries. */
export const RESUME_LIST: Query<{ resume: Resume }> = {
  parameters: [...RESUME.parameters, ...DIGEST.parameters],
  read: (query, request) => {
    const { digestMs = null } = DIGEST.read(query, request);
    return { resume: { ...readResume(request, query), digestMs } };
  },
};

function readFilter(query: URLSearchParams, more: RunFilter): RunFilter {
  const labels = [...query].filter(([name]) => name.startsWith(LABEL_PREFIX)).map(([name, value]) =>
    [name.slice(LABEL_PREFIX.length), value] as const
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

const LABEL_PREFIX = "label.";

function readList(query: URLSearchParams, name: string): string | string[] | undefined {
  const values = query.getAll(name);
  return values.length > 1 ? values : values[0];
}

function readInteger(query: URLSearchParams, name: string): number | undefined {
  const text = readText(query, name);
  if (text === undefined) return undefined;
  if (!/^\d+$/.test(text)) throw new ValidationError(`The parameter ${name} must be an integer from 0`);
  return Number(text);
}

function readStatuses(query: URLSearchParams): RunFilter["status"] {
  return readList(query, "status") as RunFilter["status"]; // the engine checks them
}

function readFlag(query: URLSearchParams, name: string): boolean | undefined {
  const text = readText(query, name);
  if (text === undefined || text === "true" || text === "false") return text === undefined ? text : text === "true";
  throw new ValidationError(`The parameter ${name} must be true or false`);
}

/** The value of a parameter that may be given once. */
function readText(query: URLSearchParams, name: string): string | undefined {
  const values = query.getAll(name);
  if (values.length > 1) throw new ValidationError(`The parameter ${name} may be given only once`);
  return values[0];
}

const LABEL = "label";
const MAX_SHOWN_LENGTH = 64;
// Two short names that differ in one letter may both be meant.
const SHORTEST_MISTYPED = 4;

/**
 * Refuses a parameter of the URL whose name is nearly one of those that a route takes: ignored, it would seem to have
 * been taken. All others are ignored.
 *
 * @throws {ValidationError} There is one. It names the other.
 */
export function checkParameterNames(query: URLSearchParams, parameters: readonly ParameterDescription[]): void {
  const known = parameters.map(({ name }) => name);
  if (known.length === 0) return;
  const findSimilar = similarNameFinder(known);
  for (const name of new Set(query.keys())) {
    const [head, ...rest] = name.split(".", 2);
    const isLabel = rest.length > 0;
    const given = isLabel ? head! : name; // a name has a part before its first dot
    if (known.includes(given) && isLabel === (given === LABEL)) continue;
    const meant = given === LABEL ? LABEL : findSimilar(given) ?? known.find((one) => isMistyped(given, one));
    if (meant === undefined || !known.includes(meant) || (isLabel && meant !== LABEL)) continue;
    const suggested = meant === LABEL ? `${LABEL}.${isLabel ? name.slice(head!.length + 1) : "<key>"}` : meant;
    throw new ValidationError(
      `There is no parameter "${tidyText(name, MAX_SHOWN_LENGTH)}": did you mean "${
        tidyText(suggested, MAX_SHOWN_LENGTH)
      }"?`,
    );
  }
}

/** Whether a name becomes another one by adding, leaving out, changing or swapping one letter, or is its plural. */
function isMistyped(given: string, name: string): boolean {
  if (given === `${name}es`) return true;
  if (name.length < SHORTEST_MISTYPED || given === name || Math.abs(given.length - name.length) > 1) return false;
  let from = 0;
  while (given[from] === name[from]) from += 1;
  const [one, other] = [given.slice(from), name.slice(from)];
  const isSwapped = one[0] === other[1] && one[1] === other[0] && one.slice(2) === other.slice(2);
  return isSwapped || one.slice(1) === other.slice(1) || one.slice(1) === other || one === other.slice(1);
}
