import { startServer } from "../../tests/stores/postgres/server.ts";

let url: string | null = null;

/**
 * The address of the server to measure: that of `HOLDFAST_POSTGRES_URL`, or one that is started for this command, whose
 * commits wait for the disk (`synchronous_commit = on`).
 */
export function serverUrl(): string {
  url ??= startServer({ fsync: true })?.url ?? null;
  if (url === null) throw new Error("There is no PostgreSQL server in /usr/lib/postgresql");
  return url;
}
