import { storeContract } from "../../../src/testing/contract/store_contract.ts";
import { startServer } from "./server.ts";

const server = startServer();

if (server === null) Deno.test.ignore("PostgresStore keeps what a store promises", () => {});
else storeContract("PostgresStore", (host) => server.open(host));
