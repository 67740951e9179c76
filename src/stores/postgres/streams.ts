import type { StreamInfo, StreamPlace } from "../../model/stream.ts";
import type { StreamText } from "../../store/run_query.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { PostgresDatabase } from "./database/postgres_database.ts";

/** Reads a stream after a place. See `Store.readStream()`. */
export function readStream(
  database: PostgresDatabase,
  runId: string,
  stream: string,
  after: StreamPlace | null,
  maxLength: number,
): Promise<StreamText | null> {
  const max = Math.min(maxLength, Number.MAX_SAFE_INTEGER);
  return database.read("read_stream", { runId, stream, position: after?.position, at: after?.at, maxLength: max });
}

/** The streams of a run, by name. See `Store.getStreams()`. */
export async function readStreams(database: PostgresDatabase, runId: string): Promise<StreamInfo[]> {
  const rows = await database.read<(Omit<StreamInfo, "updatedAt"> & { updatedAt: number })[]>("get_streams", { runId });
  return rows.map(({ name, items, bytes, isOpen, updatedAt }) => ({
    name,
    items,
    bytes,
    isOpen,
    updatedAt: isoTime(updatedAt),
  }));
}
