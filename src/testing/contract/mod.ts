/**
 * The tests of what every store promises, for a store of your own. They run with `Deno.test()`, vitest and `node:test`.
 *
 * ```ts ignore
 * import { storeContract } from "@holdfast/jobs/testing/store";
 *
 * storeContract("MyStore", (host) => MyStore.open({ host, schema: freshSchema() }));
 * ```
 *
 * @module
 */
export { type RegisterTest, storeContract, type StoreContractOptions } from "./store_contract.ts";
