import { defineJob, type Engine, type EventOf, type SqliteStore } from "@holdfast/jobs";
import { benchInput } from "./engines/holdfast.ts";

/** The public names of a checkout of this project. */
export type Holdfast = typeof import("@holdfast/jobs");

/** Something that is measured in many small slices, so that two checkouts can take turns. */
export interface Sliced {
  /** What it is. */
  readonly name: string;
  /** How much of the other's speed it has to reach. */
  readonly goal: number;
  /** How many slices make a stable median. */
  readonly slices: number;
  /** Prepares everything on an empty database, and answers what is called for each slice. */
  readonly prepare: (holdfast: Holdfast, store: SqliteStore) => Promise<Slice> | Slice;
}

/** A part of the work. */
export interface Slice {
  /** Comes before a slice and is not measured. */
  before?: () => Promise<unknown>;
  /** The slice itself. */
  work: () => Promise<unknown>;
  /** Comes after all slices. */
  end: () => Promise<unknown>;
}

const input = { n: 1 };
/** 20 rows, about 2 kB of JSON. */
const rows = Array.from(
  { length: 20 },
  (_, n) => ({ id: n, name: `name of row ${n}`, amount: n * 1.5, note: "x".repeat(40) }),
);

/** Everything that is compared. */
export const sliced: readonly Sliced[] = [
  { name: "runs of 5 steps, concurrency 100", goal: 0.97, slices: 60, prepare: drain(5, 100, 200) },
  { name: "runs without steps, concurrency 100", goal: 0.97, slices: 80, prepare: drain(0, 100, 400) },
  { name: "5 steps of 2 kB, concurrency 100", goal: 0.97, slices: 60, prepare: drain(5, 100, 100, () => rows) },
  { name: "runs of 5 steps, concurrency 10", goal: 0.95, slices: 80, prepare: drain(5, 10, 50) },
  { name: "runs of 5 steps, concurrency 1", goal: 0.95, slices: 80, prepare: drain(5, 1, 10) },
  { name: "runs of 2,000 steps, one by one", goal: 0.95, slices: 80, prepare: longRuns(2_000, 100) },
  { name: "trigger, one by one", goal: 0.97, slices: 80, prepare: triggers(1, 100) },
  { name: "trigger, 100 at once", goal: 0.97, slices: 80, prepare: triggers(100, 10) },
  { name: "wait, signal, resume", goal: 0.95, slices: 60, prepare: signals(50) },
];

function drain(
  length: number,
  concurrency: number,
  runs: number,
  result: (n: number) => unknown = (n) => n,
): Sliced["prepare"] {
  const steps = defineJob({
    name: "steps",
    input: benchInput,
    async run(step) {
      for (let n = 0; n < length; n++) await step.run(`step ${n}`, () => result(n));
    },
  });
  return ({ createEngine }, store) => {
    const engine = createEngine({ store, jobs: { steps }, worker: { concurrency } });
    return {
      before: () => engine.jobs.steps.batchTrigger(Array.from({ length: runs }, () => ({ input }))),
      work: () => engine.runUntilIdle(),
      end: () => engine.stop(),
    };
  };
}

/** One run after another, each in several slices. */
function longRuns(steps: number, perSlice: number): Sliced["prepare"] {
  return async ({ createEngine }, store) => {
    let begun = Promise.withResolvers<void>();
    let ended = Promise.withResolvers<void>();
    const long = defineJob({
      name: "long",
      input: benchInput,
      async run(step) {
        for (let n = 0; n < steps; n++) {
          if (n % perSlice === 0) {
            ended.resolve();
            await begun.promise;
          }
          await step.run(`step ${n}`, () => n);
        }
      },
    });
    const engine = createEngine({ store, jobs: { long } });
    engine.on("run:complete", () => ended.resolve());
    await engine.start();
    let slice = 0;
    return {
      before: async () => {
        if (slice++ % (steps / perSlice) > 0) return;
        ended = Promise.withResolvers();
        await engine.jobs.long.trigger(input);
        await ended.promise;
      },
      work: async () => {
        const { resolve } = begun;
        begun = Promise.withResolvers();
        ended = Promise.withResolvers();
        resolve();
        await ended.promise;
      },
      end: () => engine.stop({ timeout: 0 }),
    };
  };
}

function triggers(together: number, times: number): Sliced["prepare"] {
  const nothing = defineJob({ name: "nothing", input: benchInput, run: () => {} });
  return ({ createEngine }, store) => {
    const engine = createEngine({ store, jobs: { nothing } });
    return {
      work: async () => {
        for (let n = 0; n < times; n++) {
          await Promise.all(Array.from({ length: together }, () => engine.jobs.nothing.trigger(input)));
        }
      },
      end: () => engine.stop(),
    };
  };
}

function signals(runs: number): Sliced["prepare"] {
  const waits = defineJob({ name: "waits", input: benchInput, run: (step) => step.wait("go", {}) });
  return async ({ createEngine }, store) => {
    const engine = createEngine({ store, jobs: { waits } });
    const waiting = events(engine, "run:waiting");
    const complete = events(engine, "run:complete");
    await engine.start();
    return {
      work: async () => {
        const parked = waiting(runs);
        const ended = complete(runs);
        await engine.jobs.waits.batchTrigger(Array.from({ length: runs }, () => ({ input })));
        const ids = (await parked).map(({ waitId }) => waitId!);
        await Promise.all(ids.map((waitId) => engine.signal(waitId, { signalId: "go", payload: null })));
        await ended;
      },
      end: () => engine.stop(),
    };
  };
}

/** Answers a function that resolves with the next so many events of a type. */
function events<T extends "run:waiting" | "run:complete">(engine: Engine, type: T) {
  let heard: EventOf<T>[] = [];
  let hear = () => {};
  engine.on(type, (event) => {
    heard.push(event);
    hear();
  });
  return (count: number) =>
    new Promise<EventOf<T>[]>((resolve) => {
      heard = [];
      hear = () => heard.length === count && resolve(heard);
    });
}
