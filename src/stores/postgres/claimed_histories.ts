import type { ReplayedStepRow } from "../rows.ts";
import { toLease } from "../claimed_row.ts";
import type { PostgresDatabase } from "./database/postgres_database.ts";
import type { ClaimedHead, ClaimedRow, InputColumns, PauseRow } from "./run_answers.ts";
import { toLeaseParameter } from "./writes/parameters.ts";

// About how many characters are read by one statement, which has a time limit. A record that is longer is read alone.
const MAX_LENGTH = 2_000_000;

/** The input, or a record of the history of a claimed run. */
type Piece =
  | { kind: "input"; name: string; row: InputColumns }
  | { kind: "step"; name: string; row: ReplayedStepRow }
  | { kind: PauseRow["kind"]; name: string; row: PauseRow };

/** What `fn.read_histories()` returns. */
interface HistoriesSlice {
  /** `null`: the lease is lost. */
  runs: (Piece[] | null)[];
  /** Whether the last of these runs has more. */
  hasMore: boolean;
}

/**
 * Reads the inputs and the histories of claimed runs in slices, as they were when the runs were claimed.
 *
 * @param afterSlice Called after each slice but the last one.
 * @returns Those of the runs whose leases are not lost meanwhile.
 */
export async function readHistories(
  database: PostgresDatabase,
  heads: readonly ClaimedHead[],
  afterSlice: () => Promise<void>,
): Promise<ClaimedRow[]> {
  const pieces: (Piece[] | null)[] = heads.map(() => []);
  const leases = heads.map((head) => toLeaseParameter(toLease(head)));
  let from = 0;
  let after: Pick<Piece, "kind" | "name"> | null = null;
  while (true) {
    const slice: HistoriesSlice = await database.read("read_histories", {
      leases: leases.slice(from),
      after,
      maxLength: MAX_LENGTH,
    });
    for (const [at, read] of slice.runs.entries()) {
      pieces[from + at] = read && [...pieces[from + at] ?? [], ...read];
    }
    from += slice.runs.length - Number(slice.hasMore);
    if (from === heads.length) break;
    const last = slice.hasMore ? slice.runs.at(-1)!.at(-1)! : null; // a run that has more has a piece
    after = last && { kind: last.kind, name: last.name };
    await afterSlice();
  }
  return heads.flatMap((head, at) => pieces[at] ? [toRow(head, pieces[at])] : []);
}

function toRow(head: ClaimedHead, pieces: readonly Piece[]): ClaimedRow {
  const steps: ReplayedStepRow[] = [];
  const pauses: PauseRow[] = [];
  let input: InputColumns = { payload: null, input: null, schema_print: null };
  for (const { kind, row } of pieces) {
    if (kind === "input") input = row;
    else if (kind === "step") steps.push(row);
    else pauses.push(asOf(row, head.recorded));
  }
  return { ...head, ...input, steps, pauses: pauses.sort((one, other) => one.seq - other.seq) };
}

/**
 * A pause as it was when its run had so many records. One that is over since then is read as open: another one may have
 * been over before it, and read earlier. The execution learns of both as if they were over after the claim.
 */
function asOf(row: PauseRow, recorded: number): PauseRow {
  if (row.outcome === null || row.recorded_no <= recorded) return row;
  return { ...row, outcome: null, child: null, messages: null };
}
