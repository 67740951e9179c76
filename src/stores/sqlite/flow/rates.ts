import type { Rate } from "../../../model/flow.ts";
import { MAX_FORGOTTEN, STARTS_KEPT_MS } from "../../rules.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw, rowLimit, sql } from "../statement.ts";

// A scope is a job or a concurrency key. Its starts are numbered without a gap, and their instants never decrease: so the
// start that decides whether the next one is allowed is found by its number. A key can have several rates, those of its
// runs: there `period` is the longest of those that have counted a start so far, so it never decreases either.

/** The scope of the rate of a job. */
export function jobScope(job: string): string {
  return `job ${job}`;
}

/** The scope of the rate of a concurrency key. */
export function keyScope(key: string): string {
  return `key ${key}`;
}

function isOfKey(scope: string): boolean {
  return scope.startsWith(keyScope(""));
}

/** When a rate allows the next start; an instant that has passed if it does now. */
export function rateOpensAt(db: SqliteDatabase, scope: string, { limit, period }: Rate, now: number): number {
  const start = db.get<{ at: number }>`SELECT at FROM holdfast_starts
    WHERE scope = ${scope} AND no = (SELECT max(no) FROM holdfast_starts WHERE scope = ${scope}) - ${limit} + 1`;
  return start === undefined ? -Infinity : Math.min(start.at, now) + period;
}

/** How many starts a rate allows now, as far as more than `most` do not matter. */
export function countAllowed(
  db: SqliteDatabase,
  scope: string,
  { limit, period }: Rate,
  most: number,
  now: number,
): number {
  const { last } = db.one<{ last: number | null }>`SELECT max(no) AS last FROM holdfast_starts WHERE scope = ${scope}`;
  if (last === null) return limit;
  const oldest = db.all<{ no: number; at: number }>`
    SELECT no, at FROM holdfast_starts WHERE scope = ${scope} AND no > ${last - limit}
      ORDER BY no LIMIT ${raw(rowLimit(most))}`;
  const unused = limit - (last - (oldest[0]?.no ?? last + 1) + 1);
  const counting = oldest.findIndex(({ at }) => Math.min(at, now) + period > now);
  return unused + (counting === -1 ? oldest.length : counting);
}

/** Counts starts. Removes those that no rate counts any more, some more than are added. */
export function addStarts(
  db: SqliteDatabase,
  scope: string,
  { limit, period }: Rate,
  count: number,
  now: number,
): void {
  const kept = isOfKey(scope) ? sql`max(${period}, coalesce(period, 0))` : period;
  for (let added = 0; added < count; added++) {
    db.run`INSERT INTO holdfast_starts (scope, no, at, period)
      SELECT ${scope}, coalesce(max(no), 0) + 1, ${now}, ${kept} FROM holdfast_starts WHERE scope = ${scope}`;
  }
  db.run`DELETE FROM holdfast_starts WHERE scope = ${scope} AND no IN
    (SELECT no FROM holdfast_starts WHERE scope = ${scope} ORDER BY no LIMIT ${raw(rowLimit(2 * count))})
    AND at + (SELECT period FROM holdfast_starts WHERE scope = ${scope} ORDER BY no DESC LIMIT 1) <= ${now}
    AND no <= (SELECT max(no) FROM holdfast_starts WHERE scope = ${scope}) - ${limit}`;
}

/** Makes starts in the future starts of now: the clock was set back. */
export function correctStarts(db: SqliteDatabase, now: number): void {
  db.run`UPDATE holdfast_starts SET at = ${now} WHERE at > ${now}`;
  db.run`UPDATE holdfast_openings SET opens_at = ${now} + period WHERE opens_at > ${now} + period`;
}

/** Removes some of the starts that count no more, of scopes that have no new ones. */
export function forgetStarts(db: SqliteDatabase, now: number): void {
  db.run`DELETE FROM holdfast_starts WHERE (scope, no) IN
    (SELECT scope, no FROM holdfast_starts WHERE at < ${now - STARTS_KEPT_MS} ORDER BY at LIMIT ${raw(MAX_FORGOTTEN)})
    AND at + (SELECT last.period FROM holdfast_starts last WHERE last.scope = holdfast_starts.scope
              ORDER BY last.no DESC LIMIT 1) <= ${now - STARTS_KEPT_MS}`;
}
