import type { StoredRun } from "../../../src/model/run.ts";
import type { Blocker } from "../../../src/store/blockers.ts";
import { over } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of what `explain()` says. */
export const EXPLAINED_MUTANTS: readonly Mutant[] = [
  {
    name: "explain() leaves the concurrency key out",
    rule: "E1: a run that is said to be due is claimed",
    store: explaining((blockers) => blockers.filter(({ kind }) => kind !== "key")),
  },
  {
    name: "explain() says that a run of a full job is due",
    from: 19,
    parts: ["flow"],
    rule: "E1: a run that is said to be due is claimed",
    store: explaining((blockers) =>
      blockers.filter((one) => one.kind !== "limit" || one.of !== "job" || one.rate !== null)
    ),
  },
  {
    name: "explain() ignores the rates",
    from: 14,
    parts: ["flow"],
    rule: "E1: a run that is said to be due is claimed",
    store: explaining((blockers) => blockers.filter((one) => one.kind !== "limit" || one.rate === null)),
  },
  {
    name: "explain() says that a run which waits for a child is due",
    parts: ["children"],
    rule: "E1: a run that is said to be due is claimed",
    store: explaining((blockers) => blockers.filter(({ kind }) => kind !== "child")),
  },
  {
    name: "explain() leaves the pause of a job out",
    from: 23,
    parts: ["flow"],
    rule: "E1: a run that is said to be due is claimed",
    store: explaining((blockers) => blockers.filter(({ kind }) => kind !== "job_paused")),
  },
  {
    name: "explain() says that a run which has its key is behind it",
    rule: "E1: a run that is claimed was said to be due",
    store: explaining((blockers, { concurrencyKey }) =>
      concurrencyKey !== null && blockers[0]?.kind === "due"
        ? [{ kind: "key", holder: null, ahead: 0 }, ...blockers]
        : blockers
    ),
  },
];

/** A store whose answer to `explain()` is wrong. */
function explaining(change: (blockers: Blocker[], run: StoredRun) => Blocker[]): NonNullable<Mutant["store"]> {
  return over((store) => ({
    getBlockers: async (runId) => {
      const found = await store.getBlockers(runId);
      if (found === null) return null;
      const blockers = change(found.blockers, found.run);
      return { ...found, blockers: blockers.length > 0 ? blockers : [{ kind: "due", since: found.now }] };
    },
  }));
}
