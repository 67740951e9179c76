import { type Host, systemHost } from "../../model/host.ts";
import type { Store } from "../../store/store.ts";
import type { ClaimRequest } from "../../store/claim.ts";
import { FakeHost } from "../fake_host.ts";
import type { Case } from "./case.ts";
import { actorCases } from "./records/actors.ts";
import { abandonmentCases } from "./claims/abandonment.ts";
import { cancelCases } from "./runs/cancel.ts";
import { addedChildCases } from "./records/children/added.ts";
import { childResultCases } from "./records/children/results.ts";
import { orphanedChildCases } from "./records/children/of_ended_runs.ts";
import { retriedChildCases } from "./records/children/retried.ts";
import { claimCases } from "./claims/claim.ts";
import { concurrencyCases } from "./flow/concurrency.ts";
import { deadlineCases } from "./flow/deadlines.ts";
import { delayCases } from "./flow/delays.ts";
import { deleteCases } from "./runs/delete.ts";
import { endCases } from "./runs/ends.ts";
import { enqueueCases } from "./runs/enqueue.ts";
import { exactStringCases } from "./records/exact_strings.ts";
import { factCases } from "./records/facts.ts";
import { fairnessCases } from "./flow/fairness.ts";
import { fenceCases } from "./claims/fence.ts";
import { manyWritesCases } from "./claims/many_writes.ts";
import { finishCases } from "./runs/finish.ts";
import { jobPauseCases } from "./flow/job_pauses.ts";
import { historyCases } from "./runs/histories.ts";
import { holdCases } from "./claims/holds/hold.ts";
import { heldRunCases } from "./claims/holds/held_runs.ts";
import { offeredRunCases } from "./claims/holds/offered_runs.ts";
import { idempotencyCases } from "./runs/idempotency.ts";
import { journalCases } from "./records/journal.ts";
import { leaseCases } from "./claims/lease.ts";
import { limitCases } from "./flow/limits.ts";
import { addressCases } from "./records/messages/addresses.ts";
import { inboxCases } from "./records/messages/inbox.ts";
import { receiveCases } from "./records/messages/receive.ts";
import { sendCases } from "./records/messages/send.ts";
import { operateCases } from "./claims/operate.ts";
import { openingCases } from "./runs/opening.ts";
import { partCases } from "./runs/parts.ts";
import { pauseCases } from "./records/pause.ts";
import { priorityCases } from "./flow/priorities.ts";
import { rateCases } from "./flow/rates.ts";
import { readingCases } from "./runs/reading.ts";
import { retriggerCases } from "./runs/retrigger.ts";
import { retryChainCases } from "./runs/retry_chains.ts";
import { runFilterCases } from "./runs/run_filters.ts";
import { scheduleCases } from "./flow/schedules.ts";
import { signalCases } from "./records/signal.ts";
import { stepCases } from "./records/step.ts";
import { streamCases } from "./records/streams.ts";
import { transactionCases } from "./records/transactions.ts";
import { traceCases } from "./records/traces.ts";
import { versionCases } from "./claims/versions.ts";
import { wakingCases } from "./claims/waking.ts";
import { workerCases } from "./claims/worker.ts";

/** What tests are registered with: `Deno.test`, or `test` of `node:test`, vitest and others. */
export interface RegisterTest {
  /** Registers a test. */
  (name: string, body: () => Promise<void>): unknown;
  /** Registers a test that is skipped, under the name that it has in Deno. */
  ignore?: (name: string, body: () => Promise<void>) => unknown;
  /** Registers a test that is skipped, under the name that it has elsewhere. */
  skip?: (name: string, body: () => Promise<void>) => unknown;
}

/** The options of {@linkcode storeContract}. */
export interface StoreContractOptions {
  /** What the tests are registered with. Default: `Deno.test` in Deno, else `test` of `node:test`. */
  test?: RegisterTest;
}

/**
 * Registers the tests of everything that `Store` promises, for a store of your own.
 *
 * Many tests move the clock of the store, such as those of leases, deadlines and rates. They need a store that tells
 * the time of the `host` that `open` is given. If `open` has no parameter, these tests are registered as skipped, and a
 * line on the console says how many they are.
 *
 * @param name The name of the store: the names of the tests begin with it.
 * @param open Makes an empty store. Each test opens one, calls `migrate()`, and closes it.
 * @throws {TypeError} There is no function to register tests with.
 */
export function storeContract(
  name: string,
  open: (host: Host) => Promise<Store> | Store,
  options: StoreContractOptions = {},
): void {
  const test = options.test ?? testOfRuntime();
  const takesHost = open.length > 0;
  const skip = test.ignore ?? test.skip ?? (() => {});
  for (const one of CASES) {
    const register = takesHost || !one.needsHost ? test : skip;
    register(`${name}: ${one.title}`, () => takesHost ? testWithHost(one, open) : testWithOwnClock(one, open));
  }
  if (takesHost) return;
  const skipped = CASES.filter(({ needsHost }) => needsHost).length;
  console.log(
    `${name}: ${skipped} of the ${CASES.length} tests of the contract are skipped. They set the clock of the store, but open() ` +
      "has no parameter, so its store does not tell the time of a host",
  );
}

function testOfRuntime(): RegisterTest {
  const { Deno, process } = globalThis as {
    Deno?: { test?: RegisterTest };
    process?: { getBuiltinModule?: (name: string) => { test: RegisterTest } | undefined };
  };
  const test = Deno?.test ?? process?.getBuiltinModule?.("node:test")?.test;
  if (test === undefined) throw new TypeError("storeContract() needs the option test in this runtime");
  return test;
}

async function testWithHost({ body }: Case, open: (host: Host) => Promise<Store> | Store): Promise<void> {
  const host = new FakeHost();
  const store = await open(host);
  try {
    await store.migrate();
    await body({ store, host });
  } finally {
    await store.close();
  }
}

async function testWithOwnClock({ body }: Case, open: (host: Host) => Promise<Store> | Store): Promise<void> {
  const store = await open(systemHost);
  try {
    await store.migrate();
    await body({ store: withLongLeases(store), host: new FakeHost() });
  } finally {
    await store.close();
  }
}

// A case claims for a second, in which nothing happens on a clock that does not move. A slow store takes longer.
const TIMES_LONGER = 600;

/** The same store, which no test loses a lease of because time passes. */
function withLongLeases(store: Store): Store {
  return new Proxy(store, {
    get: (target, name) => {
      const value = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name !== "claim") return value.bind(target);
      return (request: ClaimRequest) => target.claim({ ...request, leaseMs: request.leaseMs * TIMES_LONGER });
    },
  });
}

/** Everything that a store promises. */
export const CASES: readonly Case[] = [
  ...openingCases,
  ...endCases,
  ...enqueueCases,
  ...idempotencyCases,
  ...retriggerCases,
  ...claimCases,
  ...wakingCases,
  ...delayCases,
  ...priorityCases,
  ...deadlineCases,
  ...abandonmentCases,
  ...concurrencyCases,
  ...limitCases,
  ...rateCases,
  ...fairnessCases,
  ...versionCases,
  ...jobPauseCases,
  ...leaseCases,
  ...fenceCases,
  ...manyWritesCases,
  ...workerCases,
  ...operateCases,
  ...stepCases,
  ...exactStringCases,
  ...streamCases,
  ...pauseCases,
  ...addedChildCases,
  ...childResultCases,
  ...orphanedChildCases,
  ...retriedChildCases,
  ...signalCases,
  ...transactionCases,
  ...sendCases,
  ...receiveCases,
  ...inboxCases,
  ...addressCases,
  ...traceCases,
  ...actorCases,
  ...scheduleCases,
  ...finishCases,
  ...cancelCases,
  ...holdCases,
  ...heldRunCases,
  ...offeredRunCases,
  ...historyCases,
  ...deleteCases,
  ...retryChainCases,
  ...readingCases,
  ...runFilterCases,
  ...partCases,
  ...factCases,
  ...journalCases,
];
