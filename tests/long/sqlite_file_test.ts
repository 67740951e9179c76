import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { storeContract } from "../../src/testing/contract/store_contract.ts";
import { afterClose } from "../support/stores/sqlite.ts";

// The fast tests have the contract over SQLite in memory: it takes half the time.
storeContract("SqliteStore on a file", async (host) => {
  const folder = await Deno.makeTempDir();
  return afterClose(
    await SqliteStore.open(`${folder}/jobs.db`, { host }),
    () => Deno.remove(folder, { recursive: true }),
  );
});
