import { DEFAULT_RUN_LIMIT, isOneOf, parseRun, type RunFilter, type RunPage } from "../../../run.ts";
import type { FoundRuns, RunQuery } from "../../../store.ts";
import { countRuns } from "../run_counts.ts";
import type { SqliteDatabase, SqliteValue } from "../sqlite_database.ts";
import { readRuns } from "./list_parts.ts";

// How many entries of an index are examined without a break.
const SLICE = 5_000;
// How many are merged without a break, from all index ranges that are read separately.
const MERGED = 25_000;
// Up to this many jobs or statuses are each read separately, in the order of the index.
const MAX_LINES = 50;

/** The fields of a filter; `null`: it does not restrict. */
interface Asked {
  jobs: readonly string[] | null;
  statuses: readonly string[] | null;
  labels: readonly Label[];
}

type Label = readonly [key: string, value: string];

/** Which of the runs that match are wanted. */
interface Page {
  limit: number;
  offset: number;
}

/** A part of a statement, with its parameters. */
interface Sql {
  text: string;
  parameters: readonly SqliteValue[];
}

/** What a page shows: how many runs there are of that kind, and the places of those on the page. */
interface Found {
  total: number;
  seqs: readonly number[];
}

/**
 * Lists runs, newest first. See `Store.getRuns()`. It yields during long scans, so that the event loop stays free.
 */
export function* listRuns(db: SqliteDatabase, filter: RunFilter): Generator<void, RunPage> {
  const { ids, ...page } = yield* findRuns(db, filter);
  // A run may have been deleted or changed since it was found.
  const runs = readRuns(db, ids, Infinity).filter((run) => run !== null && isOneOf(run.status, filter.status));
  return { runs: runs.map((run) => parseRun(run!)), ...page };
}

/** Finds the runs of a list. See `Store.findRuns()`. It yields as {@linkcode listRuns} does. */
export function* findRuns(db: SqliteDatabase, query: RunQuery): Generator<void, FoundRuns> {
  const { limit = DEFAULT_RUN_LIMIT, offset = 0, scope } = query;
  const asked: Asked = {
    jobs: listOf(query.jobName),
    statuses: listOf(query.status),
    labels: Object.entries(query.labels ?? {}),
  };
  // A list that is always empty reads nothing, so its time reveals nothing.
  if (asked.jobs?.length === 0 || asked.statuses?.length === 0) return { ids: [], total: 0, hasMore: false };
  const { total, seqs } = asked.labels.length === 0
    ? yield* findByIndex(db, asked, scope, { limit, offset })
    : yield* goThrough(db, pickLine(db, asked, scope), { limit, offset }, null);
  const rows = seqs.length === 0 ? [] : db.all(
    "SELECT id FROM holdfast_runs WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq DESC",
    JSON.stringify(seqs),
  );
  return { ids: rows.map(({ id }) => id as string), total, hasMore: offset + seqs.length < total };
}

function listOf(values: string | readonly string[] | undefined): readonly string[] | null {
  if (values === undefined) return null;
  return typeof values === "string" ? [values] : [...new Set(values)];
}

/** Without labels: how many there are is known, and an index has them in their order. */
function* findByIndex(
  db: SqliteDatabase,
  asked: Asked,
  scope: RunQuery["scope"],
  { limit, offset }: Page,
): Generator<void, Found> {
  const total = countRuns(db, asked);
  const wanted = Math.min(limit, total - offset); // more would be looked for in vain, to the end of the index
  if (wanted <= 0) return { total, seqs: [] };
  const { jobs, statuses } = asked;
  if (jobs !== null && statuses !== null) {
    const byJob = scope?.jobs === true ||
      countRuns(db, { jobs, statuses: null }) < countRuns(db, { jobs: null, statuses });
    const line = byJob ? lineOf("job", jobs) : lineOf("status", statuses);
    return yield* goThrough(db, { line, rest: restOf(asked, line, scope) }, { limit: wanted, offset }, total);
  }
  const line = jobs !== null ? lineOf("job", jobs) : statuses !== null ? lineOf("status", statuses) : null;
  let before = Number.MAX_SAFE_INTEGER;
  let skip = offset;
  const size = sliceOf(line, 0);
  for (; skip > size; skip -= size) {
    const { text, parameters } = newest(line, before, size);
    before = Number(db.get(`SELECT min(seq) AS seq FROM (${text})`, ...parameters)!.seq ?? 0);
    yield;
  }
  const { text, parameters } = newest(line, before, skip + wanted);
  const rows = db.all(`SELECT seq FROM (${text}) ORDER BY seq DESC LIMIT ? OFFSET ?`, ...parameters, wanted, skip);
  return { total, seqs: rows.map(({ seq }) => Number(seq)) };
}

/** Runs that an index has in their order: those of some jobs, in some statuses, or with a label. */
type Line =
  | { by: "job" | "status"; values: readonly string[] }
  | { by: "label"; label: Label };

function lineOf(by: "job" | "status", values: readonly string[]): Line {
  return { by, values };
}

/** The newest runs of a line before a place in the order of the triggers; `null`: of all runs. */
function newest(line: Line | null, before: number, limit: number): Sql {
  const end = { text: "seq < ? ORDER BY seq DESC LIMIT ?", parameters: [before, limit] };
  if (line === null) return { text: `SELECT seq FROM holdfast_runs WHERE ${end.text}`, parameters: end.parameters };
  if (line.by === "label") {
    return {
      text: `SELECT run_seq AS seq FROM holdfast_labels WHERE key = ? AND value = ? AND run_seq < ?
        ORDER BY run_seq DESC LIMIT ?`,
      parameters: [...line.label, ...end.parameters],
    };
  }
  const { by, values } = line;
  const only = (condition: Sql): Sql => ({
    text: `SELECT seq FROM holdfast_runs INDEXED BY holdfast_runs_by_${by} WHERE ${condition.text} AND ${end.text}`,
    parameters: [...condition.parameters, ...end.parameters],
  });
  if (values.length > MAX_LINES) return only(isAmong(by, values));
  const each = values.map((value) => only({ text: `${by} = ?`, parameters: [value] }));
  return {
    text: `SELECT seq FROM (${each.map(({ text }) => `SELECT * FROM (${text})`).join(" UNION ALL ")})
      ORDER BY seq DESC LIMIT ?`,
    parameters: [...each.flatMap(({ parameters }) => parameters), limit],
  };
}

function isAmong(column: string, values: readonly string[]): Sql {
  return { text: `${column} IN (SELECT value FROM json_each(?))`, parameters: [JSON.stringify(values)] };
}

/** Which runs are gone through, and what each of them has to fulfil. */
interface Way {
  line: Line;
  rest: Rest;
}

/**
 * With labels: goes through the caller's own runs, if a scope says which these are, by its rarest label or by its jobs:
 * so that the time depends on these. Without a scope, goes through the runs with the rarest label.
 */
function pickLine(db: SqliteDatabase, asked: Asked, scope: RunQuery["scope"]): Way {
  const own = asked.labels.filter(([key]) => scope?.labels.includes(key));
  const line: Line = own.length > 0
    ? { by: "label", label: rarest(db, own) }
    : scope?.jobs === true && asked.jobs !== null
    ? lineOf("job", asked.jobs)
    : { by: "label", label: rarest(db, asked.labels) };
  return { line, rest: restOf(asked, line, scope) };
}

/** The label that the fewest runs have, as far as it is worth to know. */
function rarest(db: SqliteDatabase, labels: readonly Label[]): Label {
  if (labels.length === 1) return labels[0]!;
  const few = labels.map((label) => ({
    label,
    runs: Number(
      db.get(
        "SELECT count(*) AS runs FROM (SELECT 1 FROM holdfast_labels WHERE key = ? AND value = ? LIMIT 1000)",
        ...label,
      )!.runs,
    ),
  }));
  return few.sort((one, other) => one.runs - other.runs)[0]!.label;
}

/** What a run `l.seq` of a line has to fulfil besides. */
interface Rest {
  join: string;
  terms: readonly Sql[];
}

/** A scope's conditions come first: a run that does not fulfil them is not looked at any further. */
function restOf({ jobs, statuses, labels }: Asked, line: Line, scope: RunQuery["scope"]): Rest {
  const isOwn = ([key]: Label) => scope?.labels.includes(key) === true;
  const others = line.by === "label" ? labels.filter((label) => label !== line.label) : labels;
  const columns = [
    ...(jobs === null || line.by === "job" ? [] : [isAmong("r.job", jobs)]),
    ...(statuses === null || line.by === "status" ? [] : [isAmong("r.status", statuses)]),
  ];
  return {
    join: columns.length === 0 ? "" : "CROSS JOIN holdfast_runs r ON r.seq = l.seq",
    terms: [
      ...others.filter(isOwn).map(hasLabel),
      ...columns,
      ...others.filter((label) => !isOwn(label)).map(hasLabel),
    ],
  };
}

// A scalar subquery, which the planner never turns into a join: it might begin with all runs that have the label.
function hasLabel([key, value]: Label): Sql {
  return {
    text: `(SELECT 1 FROM holdfast_labels o WHERE o.key = ? AND o.value = ? AND o.run_seq = l.seq) IS NOT NULL`,
    parameters: [key, value],
  };
}

/**
 * Goes through the runs of a line, slice by slice. Without a total it counts those that match, to the end of the line.
 */
function* goThrough(
  db: SqliteDatabase,
  { line, rest: { join, terms } }: Way,
  { limit, offset }: Page,
  total: number | null,
): Generator<void, Found> {
  const size = sliceOf(line, terms.length);
  const rest = terms.length === 0 ? "TRUE" : terms.map(({ text }) => text).join(" AND ");
  const wanted = terms.flatMap(({ parameters }) => parameters);
  const seqs: number[] = [];
  let found = 0;
  for (let before = Number.MAX_SAFE_INTEGER;;) {
    const slice = newest(line, before, size);
    const { entries, last, matches } = db.get(
      `SELECT count(*) AS entries, min(l.seq) AS last, count(iif(${rest}, 1, NULL)) AS matches
       FROM (${slice.text}) l ${join}`,
      ...wanted,
      ...slice.parameters,
    )!;
    const skip = Math.max(0, offset - found);
    const room = limit - seqs.length;
    if (room > 0 && Number(matches) > skip) {
      const few = terms.length === 0 ? newest(line, before, skip + room) : slice;
      const rows = db.all(
        `SELECT l.seq FROM (${few.text}) l ${join} WHERE ${rest} ORDER BY l.seq DESC LIMIT ? OFFSET ?`,
        ...few.parameters,
        ...wanted,
        room,
        skip,
      );
      seqs.push(...rows.map(({ seq }) => Number(seq)));
    }
    found += Number(matches);
    if (Number(entries) < size || (total !== null && seqs.length === limit)) return { total: total ?? found, seqs };
    before = Number(last);
    yield;
  }
}

/** How many runs of a line are gone through without a break: the fewer, the more is looked at for each of them. */
function sliceOf(line: Line | null, terms: number): number {
  const values = line === null || line.by === "label" ? 1 : line.values.length;
  return Math.ceil(Math.min(SLICE / (1 + terms), MERGED / Math.max(1, values)));
}
