/** What a store is, and how large. Sizes are in bytes; `null`: the store does not know it. */
export interface StoreInfo {
  /** Names the store: made with its tables, and copied with them. */
  id: string;
  /** Where it keeps its data. */
  kind: "memory" | "sqlite" | "postgres";
  /** The version of its tables. */
  schemaVersion: number;
  /** The size of its data, what is free in it included. */
  bytes: number | null;
  /** The size of the write-ahead log beside it. */
  walBytes: number | null;
  /** How much of `bytes` is free: deleting runs does not make a file smaller. */
  freeBytes: number | null;
  /** How many runs it has. */
  runs: number;
}
