import { unwrapped } from "../../execution/transactions.ts";
import type { DataSource } from "../../model/data_source.ts";
import type { Host } from "../../model/host.ts";
import type { Job } from "../../model/job.ts";
import type { StepTriggerOptions } from "../../model/job/step_calls.ts";
import type { ActorOptions } from "../../model/origin.ts";
import type { AsyncTransactionCalls } from "../../model/transaction.ts";
import { andThen, type Soon } from "../../values/at_once.ts";
import type { Triggers } from "../triggers/triggers.ts";
import { Requests, type RequestsDeps } from "./requests.ts";
import type { Relay } from "./relay.ts";
import { kindOf, propertyOf } from "../../values/unknown_values.ts";

type Deps = Omit<RequestsDeps, "create" | "findWait" | "findRun" | "step"> & {
  host: Host;
  triggers: Pick<Triggers, "requestNow">;
  relay: () => Relay;
};

/**
 * Adds triggers, signals and messages to the outbox, by the client of a transaction that somebody else has begun.
 *
 * @throws {TypeError} It is no such client.
 */
export function callsInTransaction(source: DataSource, client: unknown, deps: Deps): AsyncTransactionCalls {
  const { host, triggers, relay } = deps;
  const execute = executorOf(client);
  const create: RequestsDeps["create"] = (...given) => triggers.requestNow(...given);
  const requests = () => new Requests({ ...deps, step: null, findWait: null, findRun: null, create });
  const insert = (asked: Requests): Soon<void> => {
    const rows = asked.toRows(null, host.now());
    asked.commit({ runs: [], signals: [], messages: [] });
    relay().wake();
    return rows.reduce<Soon<void>>((before, row) => {
      const { sql, parameters } = source.effects.insertion(row);
      return andThen(before, () => execute(sql, parameters));
    }, undefined);
  };
  // On SQLite it is done before the first `await`.
  const call = async <T>(work: (asked: Requests) => Soon<T>) => {
    try {
      return await work(requests());
    } catch (error) {
      throw unwrapped(error);
    }
  };
  return {
    trigger: (job: Job | string, input: unknown, options: StepTriggerOptions & ActorOptions = {}) =>
      call((asked) => andThen(asked.triggerSoon(job, input, options), (run) => andThen(insert(asked), () => run))),
    signal: (waitId, signal, options) =>
      call((asked) => {
        asked.signalNow(waitId, signal, options);
        return insert(asked);
      }),
    send: (...given) =>
      call((asked) => andThen(asked.sendSoon(...given), (message) => andThen(insert(asked), () => message))),
  };
}

type Parameters = (string | number | null)[];

/**
 * What executes statements with the client of an open transaction: a function, a client of npm:pg, a transaction of
 * PGlite or npm:postgres, or a SQLite database. It is recognized by its shape. On SQLite it is done at once.
 *
 * @throws {TypeError} It is none.
 */
function executorOf(client: unknown): (sql: string, parameters: Parameters) => Soon<void> {
  const has = (name: string) => typeof propertyOf(client, name) === "function";
  const call = (name: string) => async (sql: string, parameters: Parameters) =>
    void await (client as Record<string, (sql: string, parameters: Parameters) => unknown>)[name]!(sql, parameters);
  if (has("unsafe")) return call("unsafe"); // npm:postgres, whose transactions have `prepare`, too
  if (has("prepare")) {
    const database = client as { prepare(sql: string): { run(...parameters: Parameters): unknown } };
    return (sql, parameters) => void database.prepare(sql).run(...parameters);
  }
  if (has("query")) return call("query");
  if (typeof client === "function") return async (sql, parameters) => void await client(sql, parameters);
  throw new TypeError(
    `engine.inTransaction() needs the client of an open transaction, or a function (sql, parameters), not ${
      kindOf(client)
    }`,
  );
}
