import type { Part } from "../../../store/run_query.ts";
import type { ChildResult } from "../../../wait.ts";
import { PartBuilder } from "../../part_builder.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";
import { type ChildRow, toChildResult } from "../rows.ts";

/** Reads how the children of a pause ended. See `Store.readChildren()`. */
export async function readChildren(
  database: PostgresDatabase,
  pauseId: string,
  from: number,
  maxLength: number,
): Promise<Part<ChildResult> | null> {
  const part = new PartBuilder<ChildResult>(maxLength);
  while (true) {
    const next = from + part.items.length;
    const page = await database.read<{ rows: (ChildRow | null)[]; total: number } | null>("read_children", {
      pauseId,
      from: next,
      maxLength: part.room,
    });
    if (page === null || (page.rows.length === 0 && next < page.total)) return null;
    for (const row of page.rows) {
      if (part.hasMore) break;
      if (row === null) return null;
      part.add([row], toChildResult);
    }
    const hasMore = from + part.items.length < page.total;
    if (part.hasMore || !hasMore) return { items: part.items, hasMore };
  }
}
