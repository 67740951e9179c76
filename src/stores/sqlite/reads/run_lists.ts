import { DEFAULT_RUN_LIMIT } from "../../../model/run.ts";
import type { FoundRuns, RunQuery } from "../../../store/run_query.ts";
import {
  type Columns,
  isCountedInFull,
  listOf,
  MAX_COUNT_MS,
  MAX_PROBED,
  MAX_SORTED,
  MIN_EXAMINED,
  MIN_PROBED,
  mostCounted,
  statusesOf,
  storedConditionsOf,
} from "../../run_conditions.ts";
import { countRuns, queuesOf } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong, joined, raw, sql, type SqlPart } from "../statement.ts";
import { estimateRuns, findTimedRuns, skipOthers, type TimedRuns } from "./run_times.ts";

// How many entries of an index are examined at first, and at most without a break.
const FIRST_SLICE = 200;
const SLICE = 5_000;
// How many are merged without a break, from all index ranges that are read separately.
const MERGED = 25_000;
// Up to this many jobs or statuses are read as separate ranges of the index, in its order.
const MAX_RANGES = 50;
// To look up a row for an entry of an index takes about as long as to read so many rows in their order.
const LOOKUP = 3;
const NO_SEQ = Number.MAX_SAFE_INTEGER;

/** The conditions of a filter; `null`: it does not restrict. */
interface Conditions {
  /** The queues of jobs: of all versions. */
  jobs: readonly string[] | null;
  statuses: readonly string[] | null;
  /** Whether the columns decide on the status, too. */
  isStatusImplied: boolean;
  labels: readonly Label[];
  /** Whether only held runs are found. */
  isHeld: boolean;
  /** Conditions on further columns of a run. */
  columns: readonly ColumnTerm[];
  /** The runs that were added at the right time; `null`: it does not matter. */
  timed: TimedRuns | null;
}

type Label = readonly [key: string, value: string];

/** A condition on a column of a run `l`. */
interface ColumnTerm extends SqlPart {
  column: string;
  /** Whether the column has a value. */
  isSet?: boolean;
}

/** Finds the runs of a list. See `Store.findRuns()`. It yields during long scans, so that the event loop stays free. */
export function* findRuns(db: SqliteDatabase, query: RunQuery, monotonic: () => number): Generator<void, FoundRuns> {
  const conditions: Conditions = {
    jobs: listOf(query.jobName)?.flatMap((name) => queuesOf(db, name)) ?? null,
    statuses: statusesOf(query),
    isStatusImplied: query.status === undefined,
    labels: Object.entries(query.labels ?? {}),
    isHeld: query.held === true,
    columns: columnsOf(query),
    timed: findTimedRuns(db, query),
  };
  // A list that is always empty reads nothing, so its time reveals nothing.
  const isEmpty = conditions.jobs?.length === 0 || conditions.statuses?.length === 0;
  if (isEmpty) return { ids: [], seqs: [], total: 0, hasMore: false, countedTo: null };
  const { seqs, ...counted } = yield* readPage(db, query, conditions, monotonic);
  const rows = seqs.length === 0 ? [] : db.all<{ id: string; seq: number }>`
    SELECT id, seq FROM holdfast_runs WHERE ${isAmong("seq", seqs)}
      ORDER BY seq DESC`;
  return {
    ...counted,
    ids: rows.map(({ id }) => id),
    seqs: rows.map(({ seq }) => seq),
    total: counted.total - (seqs.length - rows.length), // some may have been deleted since they were counted
  };
}

/** The columns of the conditions, and their values, if these are others. */
const COLUMNS: Columns<readonly [column: string, value?: string]> = {
  parentRunId: ["parent_id"],
  endOf: ["end_of"],
  failureKind: ["failure", "(l.failure ->> '$.kind')"],
  completedAt: ["completed_at"],
  createdAt: ["created_at"],
  held: [
    "status",
    `(l.status = 'pending'
      AND (SELECT 1 FROM holdfast_holds h WHERE h.run_seq = l.seq AND h.since IS NOT NULL) IS NOT NULL)`,
  ],
  completedAs: ["completed_as", "(l.completed_as IS NOT NULL)"],
};

function columnsOf(query: RunQuery): readonly ColumnTerm[] {
  const terms = storedConditionsOf(query).map(({ field, operator, value }) => {
    const [column, stored = typeof value === "boolean" ? `(l.${column} IS NOT NULL)` : `l.${column}`] = COLUMNS[field];
    return {
      column,
      ...sql`${raw(`${stored} ${operator}`)} ${typeof value === "boolean" ? Number(value) : value}`,
      isSet: value !== false,
    };
  });
  if (query.notRetried !== true) return terms;
  const unset = ["retriggered_as", "former_key"];
  return [...terms, ...unset.map((column) => ({ column, ...raw(`l.${column} IS NULL`) }))];
}

/**
 * Runs that an index has in their order: all, those of some jobs, in some statuses, with a label, held, with a value in
 * some other column; those of an index in another order, and a few of which the numbers were read.
 */
type IndexRange =
  | { by: "all" }
  | { by: "hold" }
  | { by: "job" | "status"; values: readonly string[] }
  | { by: "label"; label: Label }
  | { by: "column" | "unordered"; column: string; index: string; terms: readonly SqlPart[] }
  | { by: "few"; seqs: readonly number[] };

// The partial indexes by which runs are found that have a value in a column. That of `completed_at` is by the status, too.
const INDEXES: Readonly<Record<string, { by: "column" | "unordered"; index: string }>> = {
  parent_id: { by: "column", index: "holdfast_runs_by_parent" },
  failure: { by: "column", index: "holdfast_runs_by_failure" },
  completed_as: { by: "column", index: "holdfast_runs_retried" },
  end_of: { by: "unordered", index: "holdfast_runs_by_ended" },
  completed_at: { by: "unordered", index: "holdfast_runs_ended" },
};

function rangesOf({ columns, statuses }: Conditions): IndexRange[] {
  return Object.entries(INDEXES).flatMap(([column, index]) => {
    const terms = columns.filter((one) => one.column === column && one.isSet === true);
    if (terms.length === 0) return [];
    const isEnded = column === "completed_at" && statuses !== null;
    const values = [raw(`l.${column} IS NOT NULL`), ...isEnded ? [isAmong("l.status", statuses)] : []];
    return [{ column, ...index, terms: [...terms, ...values] }];
  });
}

/** The newest runs of a range that are older than the run `before`, with these columns. */
function newestIn(range: IndexRange, columns: readonly string[], before: number, limit: number): SqlPart {
  const end = sql`seq < ${before} ORDER BY seq DESC LIMIT ${limit}`;
  const read = ["seq", ...columns].join(", ");
  if (range.by === "all") return sql`SELECT ${raw(read)} FROM holdfast_runs WHERE ${end}`;
  if ("index" in range) {
    const all = allOf(range, read);
    return range.by === "column" ? sql`${all} AND ${end}` : sql`${all} LIMIT ${limit}`;
  }
  if (!("values" in range)) {
    const numbers = numbersIn(range, before, limit);
    if (columns.length === 0) return numbers;
    const ofRun = raw(columns.map((column) => `r.${column}`).join(", "));
    return sql`SELECT r.seq, ${ofRun} FROM (${numbers}) n CROSS JOIN holdfast_runs r ON r.seq = n.seq`;
  }
  const { by, values } = range;
  const only = (condition: SqlPart) =>
    sql`SELECT ${raw(`${read} FROM holdfast_runs INDEXED BY holdfast_runs_by_${by}`)} WHERE ${condition} AND ${end}`;
  if (values.length > MAX_RANGES) return only(isAmong(by, values));
  const each = values.map((value) => only(sql`${raw(by)} = ${value}`));
  if (each.length === 1) return each[0]!; // the length says so
  const all = joined(each.map((one) => sql`SELECT * FROM (${one})`), " UNION ALL ");
  return sql`SELECT * FROM (${all}) ORDER BY seq DESC LIMIT ${limit}`;
}

/** The runs of a range by a column. */
function allOf({ index, terms }: Extract<IndexRange, { index: string }>, columns: string): SqlPart {
  return sql`SELECT ${raw(`${columns} FROM holdfast_runs l INDEXED BY ${index}`)} WHERE ${joined(terms, " AND ")}`;
}

/** The numbers of runs that another table has, or that were read. */
function numbersIn(
  range: Extract<IndexRange, { by: "label" | "hold" | "few" }>,
  before: number,
  limit: number,
): SqlPart {
  if (range.by === "few") {
    const from = range.seqs.findIndex((seq) => seq < before);
    const seqs = from < 0 ? [] : range.seqs.slice(from, from + limit);
    return sql`SELECT value AS seq FROM json_each(${JSON.stringify(seqs)})`;
  }
  const found = range.by === "label"
    ? sql`holdfast_labels WHERE key = ${range.label[0]} AND value = ${range.label[1]}`
    : sql`holdfast_holds INDEXED BY holdfast_holds_by_run WHERE since IS NOT NULL`;
  return sql`SELECT run_seq AS seq FROM ${found} AND run_seq < ${before} ORDER BY run_seq DESC LIMIT ${limit}`;
}

/**
 * Chooses the runs to examine. If a scope says which runs are the caller's own, it is these, by the scope's rarest label
 * or by its jobs, so that the time depends only on them. Otherwise it is the range that is probably read the fastest.
 */
function* chooseRange(
  db: SqliteDatabase,
  conditions: Conditions,
  scope: RunQuery["scope"],
): Generator<void, IndexRange> {
  const { jobs, statuses, labels, isHeld, columns, timed } = conditions;
  const toRange = (label: Label): IndexRange => ({ by: "label", label });
  const own = labels.filter(([key]) => scope?.labels.includes(key));
  if (own.length > 0) return yield* cheapest(db, own.map(toRange), 1, null);
  if (scope?.jobs === true && jobs !== null) return { by: "job", values: jobs };
  const known: Candidate[] = [];
  const add = (by: "job" | "status", values: readonly string[], readsRows: boolean) => {
    const runs = countRuns(db, { jobs: null, statuses: null, [by === "job" ? "jobs" : "statuses"]: values });
    known.push({ range: { by, values }, cost: runs * (readsRows ? LOOKUP : 1) * Math.min(values.length, MAX_RANGES) });
  };
  if (statuses !== null) add("status", statuses, columns.length > 0); // its index has the jobs
  if (jobs !== null) add("job", jobs, statuses !== null || columns.length > 0);
  const unknown = [...labels.map(toRange), ...rangesOf(conditions)];
  if (isHeld) unknown.push({ by: "hold" });
  const readsRows = known.length > 0 || columns.length > 0;
  if (columns.length > 0 || known.length + unknown.length === 0) {
    known.push({ range: { by: "all" }, cost: estimateRuns(timed, countRuns(db, { jobs: null, statuses: null })) });
  }
  const best = known.sort((one, other) => one.cost - other.cost)[0] ?? null;
  const range = yield* cheapest(db, unknown, readsRows ? LOOKUP : 1, best);
  if (range.by !== "unordered") return range;
  const seqs: number[] = JSON.parse(db.one<{ seqs: string }>`${allOf(range, "json_group_array(seq) AS seqs")}`.seqs);
  return { by: "few", seqs: seqs.sort((one, other) => other - one) };
}

/** A range, and how long it takes to read it: in runs that are read one after another. */
interface Candidate {
  range: IndexRange;
  cost: number;
}

/** The cheapest of several ranges. The unknown ones are counted step by step, until one of them has ended. */
function* cheapest(
  db: SqliteDatabase,
  unknown: readonly IndexRange[],
  costOfRun: number,
  known: Candidate | null,
): Generator<void, IndexRange> {
  if (known === null && unknown.length === 1) return unknown[0]!; // the length says so
  let best = known;
  for (let most = MIN_PROBED; unknown.length > 0 && most <= MAX_PROBED; most *= 2) {
    if (best !== null && best.cost <= most * costOfRun) return best.range;
    for (const range of unknown) {
      if (range.by === "unordered" && most > MAX_SORTED) continue;
      const { runs } = db.one<{ runs: number }>`SELECT count(*) AS runs FROM (${newestIn(range, [], NO_SEQ, most)})`;
      const cost = runs * costOfRun;
      if (runs < most && (best === null || cost < best.cost)) best = { range, cost };
    }
    yield;
  }
  return best?.range ?? unknown[0]!; // there is one or more
}

/** What a run `l` of a range has to meet besides, and the columns that are read of it. */
interface Rest {
  columns: readonly string[];
  terms: readonly SqlPart[];
}

/** A scope's conditions come first: a run that does not meet them is not examined any further. */
function restOf(conditions: Conditions, range: IndexRange, scope: RunQuery["scope"]): Rest {
  const { jobs, statuses, isStatusImplied, labels } = conditions;
  const isOwn = ([key]: Label) => scope?.labels.includes(key) === true;
  const others = range.by === "label" ? labels.filter((label) => label !== range.label) : labels;
  const columns: ColumnTerm[] = [
    ...(jobs === null || range.by === "job" ? [] : [{ column: "job", ...isAmong("l.job", jobs) }]),
    ...(statuses === null || isStatusImplied || range.by === "status"
      ? []
      : [{ column: "status", ...isAmong("l.status", statuses) }]),
    ...conditions.columns.filter(({ column }) => range.by !== "column" || column !== range.column),
  ];
  return {
    columns: [...new Set(columns.map(({ column }) => column))],
    terms: [
      ...others.filter(isOwn).map(hasLabel),
      ...columns,
      ...others.filter((label) => !isOwn(label)).map(hasLabel),
    ],
  };
}

// A scalar subquery: the planner never turns it into a join, which might begin with all runs that have the label.
function hasLabel([key, value]: Label): SqlPart {
  return sql`(SELECT 1 FROM holdfast_labels o WHERE o.key = ${key} AND o.value = ${value} AND o.run_seq = l.seq)
    IS NOT NULL`;
}

/** Examines the runs of a range, slice by slice: until the page is full, and then to count, as long as that may take. */
function* readPage(
  db: SqliteDatabase,
  query: RunQuery,
  conditions: Conditions,
  monotonic: () => number,
): Generator<void, Omit<FoundRuns, "ids">> {
  const { limit = DEFAULT_RUN_LIMIT, offset = 0, scope } = query;
  const startedAt = monotonic();
  const known = isCountedInFull(query) ? countRuns(db, conditions) : null;
  // A search for more than there are would read to the end of the index.
  const wanted = known === null ? limit : Math.min(limit, known - offset);
  const end = (seqs: number[], total: number, hasMore: boolean, countedTo: number | null = null) => (
    { seqs, total, hasMore, countedTo }
  );
  if (known !== null && wanted <= 0) return end([], known, offset < known);
  const range = yield* chooseRange(db, conditions, scope);
  const { columns, terms } = restOf(conditions, range, scope);
  const rest = terms.length === 0 ? raw("TRUE") : joined(terms, " AND ");
  const most = mostCounted(query);
  const seqs: number[] = [];
  let [found, examined, size] = [0, 0, Math.min(FIRST_SLICE, largestSlice(range, terms.length))];
  for (let before = query.before ?? NO_SEQ;;) {
    before = skipOthers(conditions.timed, before);
    // The time of a scope's list must not depend on the runs of others.
    if (scope === undefined) before = skipUnlabelled(db, conditions.labels, before);
    const slice = newestIn(range, columns, before, size);
    const { entries, last, matches } = db.one<{ entries: number; last: number | null; matches: number }>`
      SELECT count(*) AS entries, min(l.seq) AS last, count(iif(${rest}, 1, NULL)) AS matches FROM (${slice}) l`;
    const matching = (count: number, skip: number) =>
      db.all<{ seq: number }>`SELECT l.seq FROM (${slice}) l WHERE ${rest} ORDER BY l.seq DESC
        LIMIT ${count} OFFSET ${skip}`.map(({ seq }) => seq);
    const skip = Math.max(0, offset - found);
    if (seqs.length < wanted && matches > skip) seqs.push(...matching(wanted - seqs.length, skip));
    found += matches;
    examined += entries;
    if (known !== null && (seqs.length === wanted || entries < size)) {
      return end(seqs, known, offset + seqs.length < known);
    }
    const hasMore = found > offset + seqs.length;
    if (known === null && found > most) {
      const uncounted = found - most;
      const lastCounted = uncounted === matches ? before : matching(1, matches - uncounted - 1)[0]!; // the slice has so many
      return end(seqs, most, hasMore, lastCounted);
    }
    if (entries < size) return end(seqs, found, hasMore);
    before = last!; // of a full slice
    const isLate = examined >= MIN_EXAMINED && monotonic() - startedAt >= MAX_COUNT_MS;
    if (isLate && found > offset + limit) return end(seqs, found, true, before);
    size = Math.min(size * 4, largestSlice(range, terms.length));
    yield;
  }
}

/** The number below which the newest runs are that can have all labels. */
function skipUnlabelled(db: SqliteDatabase, labels: readonly Label[], before: number): number {
  return labels.reduce((least, [key, value]) => {
    const newest = db.one<{ seq: number | null }>`
      SELECT max(run_seq) AS seq FROM holdfast_labels WHERE key = ${key} AND value = ${value} AND run_seq < ${least}`;
    return (newest.seq ?? 0) + 1;
  }, before);
}

/** How many runs of a range are examined without a break: fewer, if there is more to check for each of them. */
function largestSlice(range: IndexRange, terms: number): number {
  const values = "values" in range ? range.values.length : 1;
  return Math.ceil(Math.min(SLICE / (1 + terms), MERGED / Math.max(1, values)));
}
