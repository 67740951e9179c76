import { isoTime } from "../../../values/iso_time.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";

/** Something outside of the store that makes it slow. */
export interface PostgresWarning {
  /** `held_snapshot`: a transaction is open for so long that dead rows cannot be removed, so claims become slower. */
  code: "held_snapshot";
  /** What is wrong, and what to do. */
  message: string;
  /** The process of the server, for `pg_terminate_backend()`. */
  pid: number;
  /** Its role. */
  user: string | null;
  /** When the transaction began: ISO 8601 in UTC. */
  since: string;
}

interface HeldSnapshotRow {
  pid: number;
  user: string | null;
  application: string | null;
  state: string | null;
  since: number;
}

/** Finds what makes a store slow. See `PostgresStore.getWarnings()`. */
export async function readWarnings(database: PostgresDatabase, olderThanMs: number): Promise<PostgresWarning[]> {
  const rows = await database.read<HeldSnapshotRow[]>("held_snapshots", { olderThanMs });
  return rows.map(({ pid, user, application, state, since: at }) => {
    const since = isoTime(at);
    const who = `Process ${pid} of role "${user}"${application ? ` ("${application}")` : ""}`;
    const message = `${who} has had a transaction open since ${since} (${state}): dead rows cannot be removed, and ` +
      `claims become slower, until it ends. To end it: SELECT pg_terminate_backend(${pid})`;
    return { code: "held_snapshot", message, pid, user, since };
  });
}
