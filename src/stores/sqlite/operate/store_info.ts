import type { StoreInfo } from "../../../store/store_info.ts";
import { countRuns } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** How large the file is. See `Store.getInfo()`. */
export function readStoreInfo(db: SqliteDatabase, schemaVersion: number, walBytes: number | null): StoreInfo {
  const { pages, free, size, id } = db.one<{ pages: number; free: number; size: number; id: string }>`
    SELECT (SELECT id FROM holdfast_schema) AS id,
    (SELECT page_count FROM pragma_page_count) AS pages,
    (SELECT freelist_count FROM pragma_freelist_count) AS free, (SELECT page_size FROM pragma_page_size) AS size`;
  return {
    id,
    kind: "sqlite",
    schemaVersion,
    bytes: pages * size,
    walBytes,
    freeBytes: free * size,
    runs: countRuns(db, { jobs: null, statuses: null }),
  };
}
