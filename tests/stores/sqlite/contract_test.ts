import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { storeContract } from "../../../src/testing/contract/store_contract.ts";

storeContract("SqliteStore in memory", (host) => SqliteStore.open(":memory:", { host }));
