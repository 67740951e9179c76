import process from "node:process";
import { type Host, systemHost } from "../../../src/model/host.ts";
import type { Store } from "../../../src/store/store.ts";
import { ReusedSchemas } from "../../stores/postgres/reused_schemas.ts";
import { FakeHost } from "../fake_host.ts";
import { PendingCalls } from "./pending_calls.ts";

/** The server that the tests over all stores use. `deno task test:postgres` starts one and sets it. */
export const POSTGRES_URL: string | undefined = process.env.HOLDFAST_POSTGRES_URL;

let schemas: ReusedSchemas | undefined;

/**
 * Opens a store in a schema that no other has meanwhile, and the host that tells it the time: `settle()` waits for the
 * answers of the database, which take longer than macrotasks. Its tables are made and empty.
 */
export function openPostgres(url: string): { host: FakeHost; opening: Promise<Store> } {
  const calls = new PendingCalls();
  const host = new FakeHost({ calls });
  schemas ??= new ReusedSchemas(url);
  return {
    host,
    opening: schemas.open({ durability: "relaxed", listenUrl: null, host: storeHost(host) })
      .then((store) => calls.watch(store)),
  };
}

/** The time of a test, for a store: its own timers, between notifications of other processes, are none of the test. */
function storeHost(host: FakeHost): Host {
  return {
    now: () => host.now(),
    monotonic: () => host.monotonic(),
    random: () => host.random(),
    newId: () => host.newId(),
    schedule: systemHost.schedule,
    defer: systemHost.defer,
  };
}
