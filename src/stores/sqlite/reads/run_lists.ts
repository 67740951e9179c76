import { DEFAULT_RUN_LIMIT } from "../../../model/run.ts";
import type { FoundRuns, RunQuery } from "../../../store/run_query.ts";
import { type Columns, listOf, statusesOf, storedConditionsOf } from "../../run_conditions.ts";
import { queuesOf } from "../evolution/queues.ts";
import { countRuns } from "../run_counts.ts";
import type { SqliteDatabase, SqliteValue } from "../sqlite_database.ts";

// How many entries of an index are examined without a break.
const SLICE = 5_000;
// How many are merged without a break, from all index ranges that are read separately.
const MERGED = 25_000;
// Up to this many jobs or statuses are read as separate ranges of the index, in its order.
const MAX_RANGES = 50;

/** The conditions of a filter; `null`: it does not restrict. */
interface Conditions {
  /** The queues of jobs: of all versions. */
  jobs: readonly string[] | null;
  statuses: readonly string[] | null;
  labels: readonly Label[];
  parentRunId: string | null;
  /** Whether only held runs are found: there are few of them. */
  isHeld: boolean;
  /** Conditions on further columns of a run `r`. */
  columns: readonly Sql[];
  /** Only runs with a smaller row number. */
  before: number;
}

type Label = readonly [key: string, value: string];

/** Which of the matching runs to return. */
interface Page {
  limit: number;
  offset: number;
}

// As the known number of runs: a scan then ends with the page.
const UNCOUNTED = Infinity;
const NO_SEQ = Number.MAX_SAFE_INTEGER;

/** A part of a statement, with its parameters. */
interface Sql {
  text: string;
  parameters: readonly SqliteValue[];
}

/** The number of matching runs, and the row numbers of those on the page. */
interface Found {
  total: number;
  seqs: readonly number[];
}

/** Finds the runs of a list. See `Store.findRuns()`. It yields during long scans, so that the event loop stays free. */
export function* findRuns(db: SqliteDatabase, query: RunQuery): Generator<void, FoundRuns> {
  const { limit = DEFAULT_RUN_LIMIT, offset = 0, scope } = query;
  const conditions: Conditions = {
    jobs: listOf(query.jobName)?.flatMap((name) => queuesOf(db, name)) ?? null,
    statuses: statusesOf(query),
    labels: Object.entries(query.labels ?? {}),
    parentRunId: query.parentRunId ?? null,
    isHeld: query.held === true,
    columns: columnsOf(query),
    before: query.before ?? NO_SEQ,
  };
  // A list that is always empty reads nothing, so its time reveals nothing.
  const isEmpty = conditions.jobs?.length === 0 || conditions.statuses?.length === 0;
  if (isEmpty) return { ids: [], seqs: [], total: 0, hasMore: false };
  const { total, seqs } = query.uncounted === true
    ? yield* findUncounted(db, conditions, scope, { limit, offset })
    : isByIndex(conditions)
    ? yield* findByIndex(db, conditions, scope, { limit, offset })
    : yield* scan(db, chooseScan(db, conditions, scope), { limit, offset }, null);
  const rows = seqs.length === 0 ? [] : db.all<{ id: string; seq: number }>(
    "SELECT id, seq FROM holdfast_runs WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq DESC",
    JSON.stringify(seqs),
  );
  return {
    ids: rows.map(({ id }) => id),
    seqs: rows.map(({ seq }) => seq),
    total: total - (seqs.length - rows.length), // some may have been deleted since they were counted
    hasMore: offset + seqs.length < total,
  };
}

/** Whether the filter restricts only jobs and statuses, whose runs are counted. */
function isByIndex({ labels, columns, parentRunId, before }: Conditions): boolean {
  return labels.length + columns.length === 0 && parentRunId === null && before === NO_SEQ;
}

/** Finds a page and looks whether one more run follows. */
function* findUncounted(
  db: SqliteDatabase,
  conditions: Conditions,
  scope: RunQuery["scope"],
  { limit, offset }: Page,
): Generator<void, Found> {
  const page = { limit: limit + 1, offset };
  const { seqs } = yield* scan(db, chooseScan(db, conditions, scope), page, UNCOUNTED);
  return { total: offset + seqs.length, seqs: seqs.slice(0, limit) };
}

/** The values of the conditions; `null`: an index has the runs. */
const COLUMNS: Columns<string | null> = {
  parentRunId: null,
  failureKind: "r.failure ->> '$.kind'",
  completedAt: "r.completed_at",
  createdAt: "r.created_at",
  held: `(r.status = 'pending'
    AND (SELECT 1 FROM holdfast_holds h WHERE h.run_seq = r.seq AND h.since IS NOT NULL) IS NOT NULL)`,
};

function columnsOf(query: RunQuery): readonly Sql[] {
  return [
    ...storedConditionsOf(query).filter(({ field }) => COLUMNS[field] !== null)
      .map(({ field, operator, value }) => ({
        text: `${COLUMNS[field]} ${operator} ?`,
        parameters: [typeof value === "boolean" ? Number(value) : value],
      })),
    ...(query.notRetried === true ? [{ text: "r.retriggered_as IS NULL", parameters: [] }] : []),
  ];
}

/** Finds runs without labels: their number is stored, and an index has them in their order. */
function* findByIndex(
  db: SqliteDatabase,
  conditions: Conditions,
  scope: RunQuery["scope"],
  { limit, offset }: Page,
): Generator<void, Found> {
  const total = countRuns(db, conditions);
  const wanted = Math.min(limit, total - offset); // a search for more would read to the end of the index
  if (wanted <= 0) return { total, seqs: [] };
  const { jobs, statuses } = conditions;
  const range = chooseRange(db, conditions, scope);
  if (jobs !== null && statuses !== null) {
    return yield* scan(db, scanOf(conditions, range, scope), { limit: wanted, offset }, total);
  }
  let before = NO_SEQ;
  let skip = offset;
  const size = sliceSize(range, 0);
  for (; skip > size; skip -= size) {
    const { text, parameters } = newestIn(range, before, size);
    before = db.one<{ seq: number | null }>(`SELECT min(seq) AS seq FROM (${text})`, ...parameters).seq ?? 0;
    yield;
  }
  const { text, parameters } = newestIn(range, before, skip + wanted);
  const sql = `SELECT seq FROM (${text}) ORDER BY seq DESC LIMIT ? OFFSET ?`;
  const rows = db.all<{ seq: number }>(sql, ...parameters, wanted, skip);
  return { total, seqs: rows.map(({ seq }) => seq) };
}

/** The range by job or by status with fewer runs; `null`: the filter has neither. */
function chooseRange(
  db: SqliteDatabase,
  { jobs, statuses }: Conditions,
  scope: RunQuery["scope"],
): IndexRange | null {
  if (jobs === null) return statuses === null ? null : { by: "status", values: statuses };
  const byJob = statuses === null || scope?.jobs === true ||
    countRuns(db, { jobs, statuses: null }) < countRuns(db, { jobs: null, statuses });
  return byJob ? { by: "job", values: jobs } : { by: "status", values: statuses };
}

/** Runs that an index has in their order: those of some jobs, in some statuses, with a parent, with a label, or held. */
type IndexRange =
  | { by: "hold" }
  | { by: "job" | "status"; values: readonly string[] }
  | { by: "parent"; parentRunId: string }
  | { by: "label"; label: Label };

/** The newest runs of a range that are older than the run `before`; `null`: of all runs. */
function newestIn(range: IndexRange | null, before: number, limit: number): Sql {
  const end = { text: "seq < ? ORDER BY seq DESC LIMIT ?", parameters: [before, limit] };
  if (range === null) return { text: `SELECT seq FROM holdfast_runs WHERE ${end.text}`, parameters: end.parameters };
  if (range.by === "hold") {
    return {
      text: `SELECT run_seq AS seq FROM holdfast_holds INDEXED BY holdfast_holds_by_run
        WHERE since IS NOT NULL AND run_seq < ? ORDER BY run_seq DESC LIMIT ?`,
      parameters: end.parameters,
    };
  }
  if (range.by === "label") {
    return {
      text: `SELECT run_seq AS seq FROM holdfast_labels WHERE key = ? AND value = ? AND run_seq < ?
        ORDER BY run_seq DESC LIMIT ?`,
      parameters: [...range.label, ...end.parameters],
    };
  }
  if (range.by === "parent") {
    return {
      text: `SELECT seq FROM holdfast_runs INDEXED BY holdfast_runs_by_parent WHERE parent_id = ? AND ${end.text}`,
      parameters: [range.parentRunId, ...end.parameters],
    };
  }
  const { by, values } = range;
  const only = (condition: Sql): Sql => ({
    text: `SELECT seq FROM holdfast_runs INDEXED BY holdfast_runs_by_${by} WHERE ${condition.text} AND ${end.text}`,
    parameters: [...condition.parameters, ...end.parameters],
  });
  if (values.length > MAX_RANGES) return only(isAmong(by, values));
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

/** The runs to examine, and the conditions that each of them has to meet. */
interface Scan {
  /** `null`: all runs. */
  range: IndexRange | null;
  rest: Rest;
  /** Only runs with a smaller row number. */
  before: number;
}

/**
 * Chooses the scan for a filter with labels or with conditions on columns. If a scope says which runs are the caller's own, it examines these, by the
 * scope's rarest label or by its jobs, so that the time depends only on them. Otherwise it examines the runs with the
 * parent, or those that are held, or with the rarest label, or those of the jobs or statuses.
 */
function chooseScan(db: SqliteDatabase, conditions: Conditions, scope: RunQuery["scope"]): Scan {
  const own = conditions.labels.filter(([key]) => scope?.labels.includes(key));
  const range: IndexRange | null = own.length > 0
    ? { by: "label", label: rarest(db, own) }
    : scope?.jobs === true && conditions.jobs !== null
    ? { by: "job", values: conditions.jobs }
    : conditions.parentRunId !== null
    ? { by: "parent", parentRunId: conditions.parentRunId }
    : conditions.isHeld
    ? { by: "hold" }
    : conditions.labels.length > 0
    ? { by: "label", label: rarest(db, conditions.labels) }
    : chooseRange(db, conditions, scope);
  return scanOf(conditions, range, scope);
}

function scanOf(conditions: Conditions, range: IndexRange | null, scope: RunQuery["scope"]): Scan {
  return { range, rest: restOf(conditions, range, scope), before: conditions.before };
}

/** The label that the fewest runs have; of labels with 1,000 runs or more, any. */
function rarest(db: SqliteDatabase, labels: readonly Label[]): Label {
  if (labels.length === 1) return labels[0]!; // the length says so
  const few = labels.map((label) => ({
    label,
    runs: db.one<{ runs: number }>(
      "SELECT count(*) AS runs FROM (SELECT 1 FROM holdfast_labels WHERE key = ? AND value = ? LIMIT 1000)",
      ...label,
    ).runs,
  }));
  return few.sort((one, other) => one.runs - other.runs)[0]!.label; // it is called with one label or more
}

/** The conditions that a run `l.seq` of a range has to meet besides. */
interface Rest {
  join: string;
  terms: readonly Sql[];
}

/** A scope's conditions come first: a run that does not meet them is not examined any further. */
function restOf(conditions: Conditions, range: IndexRange | null, scope: RunQuery["scope"]): Rest {
  const { jobs, statuses, labels, parentRunId } = conditions;
  const isOwn = ([key]: Label) => scope?.labels.includes(key) === true;
  const others = range?.by === "label" ? labels.filter((label) => label !== range.label) : labels;
  const columns = [
    ...(jobs === null || range?.by === "job" ? [] : [isAmong("r.job", jobs)]),
    ...(statuses === null || range?.by === "status" ? [] : [isAmong("r.status", statuses)]),
    ...conditions.columns,
  ];
  return {
    join: columns.length === 0 ? "" : "CROSS JOIN holdfast_runs r ON r.seq = l.seq",
    terms: [
      ...others.filter(isOwn).map(hasLabel),
      ...(parentRunId === null || range?.by === "parent" ? [] : [{ text: IS_CHILD, parameters: [parentRunId] }]),
      ...columns,
      ...others.filter((label) => !isOwn(label)).map(hasLabel),
    ],
  };
}

const IS_CHILD = "(SELECT c.parent_id FROM holdfast_runs c WHERE c.seq = l.seq) = ?";

// A scalar subquery: the planner never turns it into a join, which might begin with all runs that have the label.
function hasLabel([key, value]: Label): Sql {
  return {
    text: `(SELECT 1 FROM holdfast_labels o WHERE o.key = ? AND o.value = ? AND o.run_seq = l.seq) IS NOT NULL`,
    parameters: [key, value],
  };
}

/**
 * Examines the runs of a range, slice by slice. Without a total it counts the matching runs to the end of the range.
 */
function* scan(
  db: SqliteDatabase,
  { range, rest: { join, terms }, before: start }: Scan,
  { limit, offset }: Page,
  total: number | null,
): Generator<void, Found> {
  const size = sliceSize(range, terms.length);
  const rest = terms.length === 0 ? "TRUE" : terms.map(({ text }) => text).join(" AND ");
  const wanted = terms.flatMap(({ parameters }) => parameters);
  const seqs: number[] = [];
  let found = 0;
  for (let before = start;;) {
    const slice = newestIn(range, before, size);
    const { entries, last, matches } = db.one<{ entries: number; last: number | null; matches: number }>(
      `SELECT count(*) AS entries, min(l.seq) AS last, count(iif(${rest}, 1, NULL)) AS matches
       FROM (${slice.text}) l ${join}`,
      ...wanted,
      ...slice.parameters,
    );
    const skip = Math.max(0, offset - found);
    const room = limit - seqs.length;
    if (room > 0 && matches > skip) {
      const few = terms.length === 0 ? newestIn(range, before, skip + room) : slice;
      const rows = db.all<{ seq: number }>(
        `SELECT l.seq FROM (${few.text}) l ${join} WHERE ${rest} ORDER BY l.seq DESC LIMIT ? OFFSET ?`,
        ...few.parameters,
        ...wanted,
        room,
        skip,
      );
      seqs.push(...rows.map(({ seq }) => seq));
    }
    found += matches;
    if (entries < size || (total !== null && seqs.length === limit)) return { total: total ?? found, seqs };
    before = last ?? 0;
    yield;
  }
}

/** How many runs of a range are examined without a break: fewer, if there is more to check for each of them. */
function sliceSize(range: IndexRange | null, terms: number): number {
  const values = range === null || !("values" in range) ? 1 : range.values.length;
  return Math.ceil(Math.min(SLICE / (1 + terms), MERGED / Math.max(1, values)));
}
