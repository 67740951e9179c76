import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { storeContract } from "../../../src/testing/contract/store_contract.ts";
import { afterClose } from "../../support/stores/sqlite.ts";

const name = "bun:sqlite"; // only Bun has it: it is not to be bundled
const { Database }: { Database: new (path: string) => SqliteDriver & { close(): void } } = await import(name);

storeContract("SqliteStore on bun:sqlite", async (host) => {
  const database = new Database(":memory:");
  return afterClose(await SqliteStore.from(database, { host }), () => database.close());
});
