/** Durable jobs. @module */
export { SqliteStore } from "./src/stores/sqlite_store.ts";
