import type { FactValue, FactValueRef } from "../../model/fact.ts";
import type { Cursor, JournalPage } from "../../model/journal.ts";
import type { RunIdentity } from "../../model/run.ts";
import type { AwaitedPause, RunState } from "../../store/run_query.ts";
import type { OriginText } from "../../model/origin.ts";
import { isoTime } from "../../values/iso_time.ts";
import { PartBuilder } from "../part_builder.ts";
import { type FactValueRow, type IdentityRow, toFactValue, toRunIdentity } from "../rows.ts";
import type { PostgresDatabase } from "./database/postgres_database.ts";
import { type RunRow, toRunText } from "./rows.ts";

/** Reads what was committed after a position. See `Store.readJournal()`. */
export async function readJournal(
  database: PostgresDatabase,
  after: number,
  maxLength: number,
  at?: number,
): Promise<JournalPage | null> {
  return await database.read<JournalPage | null>("read_journal", {
    after,
    at,
    maxLength: Math.min(maxLength, Number.MAX_SAFE_INTEGER),
  });
}

/** The end of the journal, or the given cursor if it is valid. See `Store.findCursor()`. */
export function findCursor(database: PostgresDatabase, cursor: Cursor | null): Promise<Cursor | null> {
  return database.read("find_cursor", cursor);
}

/** A run and its position in the journal. See `Store.getRunState()`. */
export async function readRunState(database: PostgresDatabase, runId: string): Promise<RunState | null> {
  const state = await database.read<
    { run: RunRow; trace: OriginText | null; place: Cursor; pauses: AwaitedPause<number>[] } | null
  >("get_run_state", { runId });
  if (state === null) return null;
  const { run, trace, place, pauses } = state;
  return {
    run: toRunText(run),
    seq: run.seq,
    place,
    trace,
    execution: run.interruptions + 1,
    pauses: pauses.map(({ deadlineAt, ...pause }) => ({ ...pause, deadlineAt: isoTime(deadlineAt) })),
  };
}

/** The identities of runs, by their row numbers. See `Store.getRunIdentities()`. */
export async function readIdentities(
  database: PostgresDatabase,
  runs: readonly number[],
): Promise<(RunIdentity | null)[]> {
  const rows = await database.read<(IdentityRow | null)[]>("get_run_identities", runs);
  return rows.map((row) => row === null ? null : toRunIdentity(row));
}

/** Reads values that facts leave out. See `Store.readFactValues()`. */
export async function readFactValues(
  database: PostgresDatabase,
  values: readonly FactValueRef[],
  maxLength: number,
): Promise<(FactValue | null)[]> {
  const part = new PartBuilder<FactValue | null>(maxLength);
  while (!part.hasMore && part.items.length < values.length) {
    const rows = await database.read<(FactValueRow | null)[]>("read_fact_values", {
      values: values.slice(part.items.length),
      maxLength: part.room,
    });
    part.add(rows, (row) => row === null ? null : toFactValue(row));
  }
  return part.items;
}
