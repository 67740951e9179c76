import type { Store } from "../../src/store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { abandonmentCases } from "./contract/abandonment.ts";
import { cancelCases } from "./contract/cancel.ts";
import { childCases } from "./contract/children.ts";
import { claimCases } from "./contract/claim.ts";
import { concurrencyCases } from "./contract/concurrency.ts";
import { deadlineCases } from "./contract/deadlines.ts";
import { delayCases } from "./contract/delays.ts";
import { deleteCases } from "./contract/delete.ts";
import { enqueueCases } from "./contract/enqueue.ts";
import { factCases } from "./contract/facts.ts";
import { fairnessCases } from "./contract/fairness.ts";
import { fenceCases } from "./contract/fence.ts";
import { finishCases } from "./contract/finish.ts";
import { jobPauseCases } from "./contract/job_pauses.ts";
import { historyCases } from "./contract/histories.ts";
import { holdCases } from "./contract/holds.ts";
import { journalCases } from "./contract/journal.ts";
import { leaseCases } from "./contract/lease.ts";
import { limitCases } from "./contract/limits.ts";
import { operateCases } from "./contract/operate.ts";
import { openingCases } from "./contract/opening.ts";
import { partCases } from "./contract/parts.ts";
import { pauseCases } from "./contract/pause.ts";
import { priorityCases } from "./contract/priorities.ts";
import { rateCases } from "./contract/rates.ts";
import { readingCases } from "./contract/reading.ts";
import { retriggerCases } from "./contract/retrigger.ts";
import { runFilterCases } from "./contract/run_filters.ts";
import { scheduleCases } from "./contract/schedules.ts";
import { signalCases } from "./contract/signal.ts";
import { stepCases } from "./contract/step.ts";
import { traceCases } from "./contract/traces.ts";
import { versionCases } from "./contract/versions.ts";
import { wakingCases } from "./contract/waking.ts";
import { workerCases } from "./contract/worker.ts";

/**
 * Registers the tests of everything that {@linkcode Store} promises.
 *
 * @param open Makes an empty store that asks `host` for the time. Each test opens one, and closes it.
 */
export function storeContract(name: string, open: (host: FakeHost) => Promise<Store> | Store): void {
  for (const { title, body } of CASES) {
    Deno.test(`${name}: ${title}`, async () => {
      const host = new FakeHost();
      const store = await open(host);
      try {
        await store.migrate();
        await body({ store, host });
      } finally {
        await store.close();
      }
    });
  }
}

const CASES = [
  ...openingCases,
  ...enqueueCases,
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
  ...workerCases,
  ...operateCases,
  ...stepCases,
  ...pauseCases,
  ...childCases,
  ...signalCases,
  ...traceCases,
  ...scheduleCases,
  ...finishCases,
  ...cancelCases,
  ...holdCases,
  ...historyCases,
  ...deleteCases,
  ...readingCases,
  ...runFilterCases,
  ...partCases,
  ...factCases,
  ...journalCases,
];
