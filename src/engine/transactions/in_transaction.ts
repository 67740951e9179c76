import { unwrapped } from "../../execution/transactions.ts";
import type { DataSource } from "../../model/data_source.ts";
import type { Host } from "../../model/host.ts";
import type { Job, StepTriggerOptions } from "../../model/job.ts";
import type { ActorOptions } from "../../model/origin.ts";
import type { AsyncTransactionCalls } from "../../model/transaction.ts";
import { andThen, type Soon } from "../../values/at_once.ts";
import type { Triggers } from "../triggers/triggers.ts";
import { executorOf, inPromise } from "./open_transaction.ts";
import { toRows } from "./outbox_rows.ts";
import type { Relay } from "./relay.ts";
import { Requests, type RequestsDeps } from "./requests.ts";

type Deps = Omit<RequestsDeps, "create" | "findWait"> & {
  host: Host;
  triggers: Pick<Triggers, "requestNow">;
  relay: () => Relay;
};

/**
 * Adds triggers and signals to the outbox, by the client of a transaction that somebody else has begun.
 *
 * @throws {TypeError} It is no such client.
 */
export function callsInTransaction(source: DataSource, client: unknown, deps: Deps): AsyncTransactionCalls {
  const { host, triggers, relay } = deps;
  const execute = executorOf(client);
  const requests = () => new Requests({ ...deps, findWait: null, create: (...given) => triggers.requestNow(...given) });
  const insert = (asked: Requests): Soon<void> => {
    const rows = toRows(asked, null, host.now());
    asked.commit({ runs: [], signals: [] });
    relay().wake();
    return rows.reduce<Soon<void>>((before, row) => {
      const { sql, parameters } = source.effects.insertion(row);
      return andThen(before, () => execute(sql, parameters));
    }, undefined);
  };
  const call = <T>(work: () => Soon<T>) =>
    inPromise(work).catch((error) => {
      throw unwrapped(error);
    });
  return {
    trigger: (job: Job | string, input: unknown, options: StepTriggerOptions & ActorOptions = {}) =>
      call(() => {
        const asked = requests();
        return andThen(
          asked.triggerSoon(job, input, options),
          (run) => andThen(insert(asked), () => run),
        );
      }),
    signal: (waitId, signal, options) =>
      call(() => {
        const asked = requests();
        asked.signalNow(waitId, signal, options);
        return insert(asked);
      }),
  };
}
