import { StoreError } from "../../../src/model/error.ts";
import { Chance } from "../../support/chance.ts";
import type { Faults } from "../faults.ts";
import type { SimProcess } from "../sim_process.ts";

/** What can go wrong on the way to a store or a database: probabilities for each call. */
export interface Unreliability {
  latency: number;
  fails: number;
  diesBefore: number;
  diesAfter: number;
  losesAnswer: number;
}

/** How a process reaches something. */
export interface Route {
  seed: number;
  /** What is reached, as part of the names of faults. */
  what: string;
  process: SimProcess;
  unreliability: Unreliability;
  faults: Faults;
  /** Whether a request arrives although its sender has died: what is called is in another process. */
  isRemote: boolean;
  /** Kills the process. */
  die(): void;
  /** A call was carried out. */
  called(method: string): void;
}

// What takes part in no promise goes through undisturbed.
const LOCAL = new Set<PropertyKey>(["close", "backup", "watch", "then", Symbol.asyncDispose]);

/** The same object, as a process reaches it: calls take their time, fail, are answered to nobody, or are its last. */
export function reach<T extends object>(target: T, route: Route): T {
  let calls = 0;
  return new Proxy(target, {
    get(_, method) {
      if (LOCAL.has(method) || typeof method === "symbol") return undefined;
      const called = target[method as keyof T];
      if (typeof called !== "function" || method === "insertion") return called;
      return (...parameters: unknown[]) =>
        send(method, ++calls, route, () => called.apply(target, parameters) as Promise<unknown>);
    },
  });
}

function send(method: string, no: number, route: Route, call: () => Promise<unknown>): Promise<unknown> {
  const { seed, what, process, unreliability, faults, isRemote, die, called } = route;
  const { world, label } = process;
  const chance = new Chance(seed, label, what, no);
  const name = `${what} ${label}:${no} ${method}`;
  const is = (fault: string, probability: number) => faults.happensAtRandom(`${name} ${fault}`, probability, chance);
  const fails = is("fails", unreliability.fails);
  const diesBefore = is("is not sent", unreliability.diesBefore);
  const diesAfter = is("is the last", unreliability.diesAfter);
  const losesAnswer = is("loses its answer", unreliability.losesAnswer);
  const travel = () => chance.next() * unreliability.latency;
  const isAlive = () => process.label === label;
  return new Promise((resolve, reject) => {
    const answer = (settle: () => void) => {
      if (!isAlive()) return;
      if (diesAfter) return void world.after(0, process, die);
      world.after(travel(), process, settle);
    };
    if (!isAlive()) return;
    if (diesBefore) return void world.after(0, process, die);
    world.after(travel(), isRemote && chance.happens(0.5) ? null : process, () => {
      if (fails) return answer(() => reject(new StoreError("The database is busy")));
      called(method);
      call().then((value) => {
        answer(() =>
          losesAnswer ? reject(new StoreError("The answer was lost", { outcomeUnknown: true })) : resolve(value)
        );
      }, (error) => answer(() => reject(error)));
    });
  });
}
