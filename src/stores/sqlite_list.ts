import { DEFAULT_RUN_LIMIT, isOneOf, parseRun, type RunFilter, type RunPage } from "../run.ts";
import type { FoundRuns } from "../store.ts";
import { countRuns } from "./sqlite_counts.ts";
import type { SqliteDatabase, SqliteValue } from "./sqlite_database.ts";
import { readRuns } from "./sqlite_parts.ts";

// How many entries of an index are gone through without a break.
const SLICE = 5_000;
// The same where each of their runs is looked at.
const LOOKUP_SLICE = 1_000;
// Of so many jobs or statuses at most each is read by itself, in the order of its index.
const MAX_LINES = 50;

/** What a filter asks for; `null`: it does not restrict. */
interface Asked {
  jobs: readonly string[] | null;
  statuses: readonly string[] | null;
  labels: readonly (readonly [key: string, value: string])[];
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
 * Lists runs, newest first. See `Store.getRuns()`. It yields wherever there is much to go through, so that the event
 * loop stays free.
 */
export function* listRuns(db: SqliteDatabase, filter: RunFilter): Generator<void, RunPage> {
  const { ids, ...page } = yield* findRuns(db, filter);
  // A run may have gone or changed since it was found.
  const runs = readRuns(db, ids, Infinity).filter((run) => run !== null && isOneOf(run.status, filter.status));
  return { runs: runs.map((run) => parseRun(run!)), ...page };
}

/** Finds the runs of a list. See `Store.findRuns()`. It yields as {@linkcode listRuns} does. */
export function* findRuns(db: SqliteDatabase, filter: RunFilter): Generator<void, FoundRuns> {
  const { limit = DEFAULT_RUN_LIMIT, offset = 0 } = filter;
  const labels = Object.entries(filter.labels ?? {});
  const asked: Asked = { jobs: listOf(filter.jobName), statuses: listOf(filter.status), labels };
  const { total, seqs } = labels.length === 0
    ? yield* findByIndex(db, asked, limit, offset)
    : yield* findByLabels(db, asked, limit, offset);
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
function* findByIndex(db: SqliteDatabase, asked: Asked, limit: number, offset: number): Generator<void, Found> {
  const total = countRuns(db, asked);
  const wanted = Math.min(limit, total - offset); // more would be looked for in vain, to the end of the index
  if (wanted <= 0) return { total, seqs: [] };
  const { jobs, statuses } = asked;
  if (jobs !== null && statuses !== null) return { total, seqs: yield* findByBoth(db, jobs, statuses, wanted, offset) };
  const line: Line | null = jobs !== null
    ? { column: "job", values: jobs }
    : statuses !== null
    ? { column: "status", values: statuses }
    : null;
  let before = Number.MAX_SAFE_INTEGER;
  let skip = offset;
  for (; skip > SLICE; skip -= SLICE) {
    const { text, parameters } = newest(line, before, SLICE);
    before = Number(db.get(`SELECT min(seq) AS seq FROM (${text})`, ...parameters)!.seq ?? 0);
    yield;
  }
  const { text, parameters } = newest(line, before, skip + wanted);
  const rows = db.all(`SELECT seq FROM (${text}) ORDER BY seq DESC LIMIT ? OFFSET ?`, ...parameters, wanted, skip);
  return { total, seqs: rows.map(({ seq }) => Number(seq)) };
}

/** By jobs and statuses: goes through the runs that have one of them, whichever are fewer, slice by slice. */
function* findByBoth(
  db: SqliteDatabase,
  jobs: readonly string[],
  statuses: readonly string[],
  wanted: number,
  offset: number,
): Generator<void, number[]> {
  const byJob = countRuns(db, { jobs, statuses: null }) < countRuns(db, { jobs: null, statuses });
  const line: Line = byJob ? { column: "job", values: jobs } : { column: "status", values: statuses };
  const rest = byJob ? isAmong("status", statuses) : isAmong("job", jobs);
  const seqs: number[] = [];
  let skip = offset;
  for (let before = Number.MAX_SAFE_INTEGER;;) {
    const { text, parameters } = newest(line, before, LOOKUP_SLICE);
    const slice = db.get(`SELECT min(seq) AS from_seq, count(*) AS entries FROM (${text})`, ...parameters)!;
    const matches = db.all(
      `SELECT seq FROM holdfast_runs WHERE seq IN (${text}) AND ${rest.text} ORDER BY seq DESC`,
      ...parameters,
      ...rest.parameters,
    );
    for (const { seq } of matches.slice(skip, skip + wanted - seqs.length)) seqs.push(Number(seq));
    skip = Math.max(0, skip - matches.length);
    if (seqs.length === wanted || Number(slice.entries) < LOOKUP_SLICE) return seqs;
    before = Number(slice.from_seq);
    yield;
  }
}

/** The runs of some jobs, or those that stand in some ways. */
interface Line {
  column: "job" | "status";
  values: readonly string[];
}

/** The newest runs before a place in the order of the triggers. */
function newest(line: Line | null, before: number, limit: number): Sql {
  const end = { text: "seq < ? ORDER BY seq DESC LIMIT ?", parameters: [before, limit] };
  if (line === null) return { text: `SELECT seq FROM holdfast_runs WHERE ${end.text}`, parameters: end.parameters };
  const { column, values } = line;
  const only = (condition: Sql): Sql => ({
    text: `SELECT seq FROM holdfast_runs INDEXED BY holdfast_runs_by_${column} WHERE ${condition.text} AND ${end.text}`,
    parameters: [...condition.parameters, ...end.parameters],
  });
  if (values.length > MAX_LINES) return only(isAmong(column, values));
  const each = values.map((value) => only({ text: `${column} = ?`, parameters: [value] }));
  return {
    text: `SELECT seq FROM (${each.map(({ text }) => `SELECT * FROM (${text})`).join(" UNION ALL ")})
      ORDER BY seq DESC LIMIT ?`,
    parameters: [...each.flatMap(({ parameters }) => parameters), limit],
  };
}

function isAmong(column: string, values: readonly string[]): Sql {
  return { text: `${column} IN (SELECT value FROM json_each(?))`, parameters: [JSON.stringify(values)] };
}

/** With labels: goes through the runs that have one of them, slice by slice, and counts those that match. */
function* findByLabels(db: SqliteDatabase, asked: Asked, limit: number, offset: number): Generator<void, Found> {
  const [first, ...others] = rarestFirst(db, asked.labels);
  const rest = conditions({ ...asked, labels: others });
  const seqs: number[] = [];
  let total = 0;
  for (let before = Number.MAX_SAFE_INTEGER;;) {
    const slice = db.get(
      `SELECT count(*) AS entries, min(run_seq) AS from_seq FROM (SELECT run_seq FROM holdfast_labels
         WHERE key = ? AND value = ? AND run_seq < ? ORDER BY run_seq DESC LIMIT ?)`,
      ...first!,
      before,
      SLICE,
    )!;
    const entries = Number(slice.entries);
    if (entries === 0) return { total, seqs };
    const from = Number(slice.from_seq);
    const matching = `FROM holdfast_labels l ${rest.join} WHERE l.key = ? AND l.value = ? AND l.run_seq >= ?
      AND l.run_seq < ? ${rest.text}`;
    const parameters = [...first!, from, before, ...rest.parameters];
    const matches = rest.text === ""
      ? entries
      : Number(db.get(`SELECT count(*) AS matches ${matching}`, ...parameters)!.matches);
    const skip = Math.max(0, offset - total);
    const wanted = limit - seqs.length;
    if (wanted > 0 && matches > skip) {
      const page = `SELECT l.run_seq AS seq ${matching} ORDER BY l.run_seq DESC LIMIT ? OFFSET ?`;
      seqs.push(...db.all(page, ...parameters, wanted, skip).map(({ seq }) => Number(seq)));
    }
    total += matches;
    if (entries < SLICE) return { total, seqs };
    before = from;
    yield;
  }
}

/** Labels in the order of how many runs have them, as far as it is worth to know. */
function rarestFirst(db: SqliteDatabase, labels: Asked["labels"]): Asked["labels"] {
  if (labels.length === 1) return labels;
  const few = labels.map((label) => ({
    label,
    runs: Number(
      db.get(
        "SELECT count(*) AS runs FROM (SELECT 1 FROM holdfast_labels WHERE key = ? AND value = ? LIMIT 1000)",
        ...label,
      )!.runs,
    ),
  }));
  return few.sort((one, other) => one.runs - other.runs).map(({ label }) => label);
}

/** What else a run `l.run_seq` has to fulfil. */
function conditions({ jobs, statuses, labels }: Asked): Sql & { join: string } {
  const terms = labels.map(([key, value]): Sql => ({
    text: "EXISTS (SELECT 1 FROM holdfast_labels o WHERE o.key = ? AND o.value = ? AND o.run_seq = l.run_seq)",
    parameters: [key, value],
  }));
  if (jobs !== null) terms.push(isAmong("r.job", jobs));
  if (statuses !== null) terms.push(isAmong("r.status", statuses));
  return {
    join: jobs === null && statuses === null ? "" : "CROSS JOIN holdfast_runs r ON r.seq = l.run_seq",
    text: terms.map(({ text }) => `AND ${text}`).join(" "),
    parameters: terms.flatMap(({ parameters }) => parameters),
  };
}
