import type { Part } from "./plan.ts";
import type { StoreKind } from "./stores.ts";

/** A seed that has found something. */
export interface FoundSeed {
  seed: number;
  store: StoreKind;
  found: string;
  /** What the plan has beside what all have. Default: nothing. */
  parts?: readonly Part[];
}

/**
 * Seeds that have found something, and what it was. They do not repeat what they found: with each change of the engine
 * or of the simulation a seed goes another way. They run as seeds like any others; what keeps a bug from coming back
 * is its regression test, in `tests/engine/` or `tests/stores/`.
 */
export const FOUND_SEEDS: readonly FoundSeed[] = [
  { seed: 84, store: "memory", found: "a client that resumed while the journal was trimmed never got the last event" },
  { seed: 7, store: "memory", found: "a wait that was prepared beside a step came in another order on a replay" },
  { seed: 12, store: "memory", found: "steps copied by a retrigger came in another order on a replay" },
  { seed: 50, store: "memory", found: "a branch that goes on for some turns was overtaken on a replay" },
  { seed: 5, store: "memory", found: "run:waiting was told after the run had been taken up again" },
  { seed: 3, store: "memory", found: "run:waiting was not told when a renewal was answered before the parking" },
  { seed: 524, store: "memory", found: "a prepared wait that was over was overtaken by a later step" },
  { seed: 1184, store: "memory", found: "prepareWait() threw a lost lease into the job" },
  { seed: 1491, store: "memory", found: "a former execution told run:waiting after a new one had begun" },
  { seed: 2006, store: "memory", found: "a trigger that was repeated made a deleted run anew" },
  { seed: 2517, store: "memory", found: "a claim that was repeated was taken for a fresh lease" },
  { seed: 2949, store: "memory", found: "a job went on after a renewal had found its lease lost" },
  { seed: 3404, store: "memory", found: "a wait was asked for while its lease was renewed, and was overtaken" },
  { seed: 6898, store: "memory", found: "a run was to park on nothing" },
  { seed: 8523, store: "memory", found: "a lease that a claim extended did not count as a change" },
  { seed: 8584, store: "memory", found: "a lease was revoked because an old answer came late" },
  {
    seed: 11598,
    store: "memory",
    found: "a stream ended without a step of another process when the run was failed here",
  },
  { seed: 32657, store: "memory", found: "a stream of all runs told anew of a run that had been deleted elsewhere" },
  { seed: 35213, store: "memory", found: "a stream of all runs told a late trigger of a run that had been deleted" },
  { seed: 402021, store: "memory", found: "a step began when the job had thrown, and was told after the run's end" },
  { seed: 408, store: "sqlite", found: "a look at pauses was overtaken by an older one" },
  {
    seed: 29,
    store: "memory",
    found: "other processes were told of a run that had expired as if its function had thrown",
    parts: ["flow"],
  },
  {
    seed: 1060,
    store: "sqlite",
    found: "a run that wanted its key for itself was passed by one with a fairness key that shares it",
    parts: ["flow"],
  },
  {
    seed: 10111,
    store: "memory",
    found: "an engine fired old slots after the answer to a firing was lost",
    parts: ["flow", "children", "schedules"],
  },
  {
    seed: 41003,
    store: "memory",
    found: "two bulk retriggers at the same time published each retry twice",
    parts: ["flow", "children", "bulk"],
  },
  {
    seed: 22522,
    store: "memory",
    found: "a run behind another job in its key held up its fairness key",
    parts: ["flow"],
  },
  {
    seed: 21762,
    store: "memory",
    found: "explain() counted runs of another version against a limit that they do not pass",
    parts: ["flow", "changes"],
  },
  {
    seed: 16,
    store: "sqlite",
    found: "the simulation asked explain() while a claim of another process waited for its commit",
    parts: ["changes"],
  },
  {
    seed: 7310187,
    store: "memory",
    found: "explain() counted a run that had kept its key over a retry delay twice",
    parts: ["flow", "children", "changes"],
  },
  {
    seed: 242,
    store: "memory",
    found: "the simulation took a pause that was asked for again for a record that frees a held run",
    parts: ["children", "changes"],
  },
  {
    seed: 3,
    store: "memory",
    found: "the simulation took events for late that a process had not read yet, a short page of the journal at a time",
    parts: ["flow", "children", "renames", "schedules", "bulk", "messages"],
  },
  {
    seed: 134,
    store: "sqlite",
    found: "the simulation took the answers of two calls of one commit in another order: one of them deleted items",
    parts: ["flow", "children"],
  },
  {
    seed: 190,
    store: "sqlite",
    found:
      "older code started more runs than its rate allows, beside newer code with a shorter period: the guide says so",
    parts: ["flow", "schedules", "bulk", "ends"],
  },
  {
    seed: 268,
    store: "sqlite",
    found: "a retry of a retry that never began asked again for an answer",
    parts: ["children", "renames"],
  },
  {
    seed: 1649,
    store: "memory",
    found: "a run that had completed no longer counted for its key when a retry of it failed",
    parts: ["flow", "children", "renames", "schedules", "links", "messages", "ends"],
  },
];
