import { StoreError } from "../../src/model/error.ts";
import type { Store } from "../../src/store/store.ts";
import { Chance } from "../support/chance.ts";
import { explainAll, type Explained } from "./check_explained.ts";
import type { Call } from "./check_calls.ts";
import type { Facts } from "./facts.ts";
import { isReading } from "./is_reading.ts";
import type { Incarnation } from "./incarnation.ts";
import type { Faults } from "./faults.ts";

/** How unreliable the way to a store is: probabilities for each call, and durations in milliseconds. */
export interface Reliability {
  latency: number;
  errorBefore: number;
  answerLost: number;
  diesAfter: number;
  slowAnswer: number;
}

/** What the way to a store leads through. */
export interface Way {
  seed: number;
  reliability: Reliability;
  faults: Faults;
  facts: Facts;
  /** How many characters of the journal are read at once. */
  pageLength: number;
  /** Whether the store is out of reach now. */
  isOut(): boolean;
  /** Whether there is no room on its disk now. */
  isDiskFull(): boolean;
  /** Whether the store refuses by itself what it has no room for. */
  hasDisk: boolean;
  /** A call was carried out or refused. */
  committed(call: Call, incarnation: Incarnation): void;
  /** A process dies now. */
  die(incarnation: Incarnation): void;
}

// Asked so often that a simulation would do little else if each took its time.
const QUICK = new Set(["getVersion"]);
// What takes part in no promise goes through undisturbed.
const LOCAL = new Set<PropertyKey>(["close", "backup", "watch", "then", Symbol.asyncDispose]);
const SLOW_MS = 1_500;

/** A store as a process reaches it: calls take their time, overtake each other, fail, or are answered to nobody. */
export function remoteStore(store: Store, incarnation: Incarnation, way: Way): Store {
  let calls = 0;
  return new Proxy(store, {
    get(_, method) {
      if (LOCAL.has(method) || typeof method === "symbol") return undefined;
      if (method === "readJournal") {
        return (after: number) =>
          send(store, { method, parameters: [after, way.pageLength], no: ++calls }, incarnation, way);
      }
      return (...parameters: unknown[]) => send(store, { method, parameters, no: ++calls }, incarnation, way);
    },
  });
}

function send(
  store: Store,
  { method, parameters, no }: { method: string; parameters: unknown[]; no: number },
  incarnation: Incarnation,
  way: Way,
): Promise<unknown> {
  const { process, label } = incarnation;
  const { world } = process;
  const { version: code } = incarnation;
  const sentAt = world.now;
  const { reliability, faults, facts } = way;
  const chance = new Chance(way.seed, label, no);
  const name = `call ${label}:${no} ${method}`;
  const isQuick = QUICK.has(method);
  const travel = () => isQuick ? 0 : chance.next() * reliability.latency;
  return new Promise((resolve, reject) => {
    const answer = (settle: () => void, ms = travel()) => {
      if (process.label === label) world.after(ms, process, settle);
    };
    // A request that is on its way may arrive although its sender has died.
    const arrives = chance.happens(0.5) ? null : process;
    world.after(travel(), arrives, () => {
      if (way.isOut()) return answer(() => reject(new StoreError("The store is out of reach")));
      if (!way.hasDisk && way.isDiskFull() && !isReading(method)) {
        facts.notice("a full disk refused a write");
        return answer(() => reject(new StoreError("The disk is full")));
      }
      if (faults.happensAtRandom(`${name} fails`, isQuick ? 0 : reliability.errorBefore, chance)) {
        facts.notice("an error came before a commit");
        return answer(() => reject(new StoreError("The store is busy")));
      }
      const isLost = faults.happensAtRandom(`${name} loses its answer`, isQuick ? 0 : reliability.answerLost, chance);
      const isLast = faults.happensAtRandom(`${name} is its last`, isQuick ? 0 : reliability.diesAfter, chance);
      const isSlow = faults.happensAtRandom(`${name} is answered late`, isQuick ? 0 : reliability.slowAnswer, chance);
      const back = travel() + (isSlow ? chance.next() * SLOW_MS : 0);
      const { writes } = facts;
      let explained: Explained | undefined;
      const done = (outcome: Call["outcome"]) => {
        if ("error" in outcome && outcome.error instanceof StoreError) {
          const { error } = outcome;
          facts.expect(way.isDiskFull(), "I11", () => `${label} was refused ${method} without need: ${error}`);
          facts.notice("a full disk refused a write");
          return answer(() => reject(error), back);
        }
        const call: Call = {
          method,
          parameters,
          outcome,
          wallNow: world.wallNow,
          now: world.now,
          sentAt,
          code,
          // A store that gathers writes for a commit may carry out those of other processes between the two.
          explained: facts.writes === writes ? explained : undefined,
        };
        way.committed(call, incarnation);
        if (isLast && process.label === label) {
          facts.notice("a process died right after a commit");
          world.after(0, process, () => way.die(incarnation));
        } else if (isLost) {
          facts.notice("an answer was lost after its commit");
          answer(() => reject(new StoreError("The answer was lost", { outcomeUnknown: true })), back);
        } else {
          if (isSlow) facts.notice("an answer came late");
          answer(() => {
            incarnation.noteAnswer(call);
            if ("error" in outcome) reject(outcome.error);
            else resolve(outcome.value);
          }, back);
        }
      };
      // Asked right before, so that little changes in between.
      const asking = method === "claim" ? explainAll(store, facts) : Promise.resolve(undefined);
      asking.then((asked) => {
        explained = asked;
        return invoke(store, method, parameters);
      }).then((value) => done({ value }), (error) => done({ error }));
    });
  });
}

function invoke(store: Store, method: string, parameters: readonly unknown[]): Promise<unknown> {
  return (store[method as keyof Store] as (...parameters: readonly unknown[]) => Promise<unknown>)(...parameters);
}
