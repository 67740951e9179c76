import type { Firing } from "../../../src/store/schedule_record.ts";
import { over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of schedules. */
export const SCHEDULE_MUTANTS: readonly Mutant[] = [
  {
    name: "a slot is fired without a look at the version",
    rule: "F6: a slot is fired by a compare-and-set",
    store: over((store) => ({
      fireSchedule: async (firing) => {
        const { schedules } = await store.getSchedules();
        const version = schedules.find(({ name }) => name === firing.schedule.name)?.version;
        return await store.fireSchedule({ ...firing, schedule: { ...firing.schedule, version: version ?? 0 } });
      },
    })),
  },
  {
    name: "slots that have passed are not counted",
    rule: "F6: a slot that is not fired is counted as skipped",
    client: overClient((store) => ({ fireSchedule: (firing) => store.fireSchedule({ ...firing, skipped: 0 }) })),
  },
  {
    name: "the run of a slot has a key without the slot",
    rule: "F6: each slot has a run of its own",
    client: overClient((store) => ({
      fireSchedule: (firing) => store.fireSchedule(withRun(firing, { idempotencyKey: firing.schedule.name })),
    })),
  },
  {
    name: "a slot is fired although its run has not ended",
    from: 5,
    rule: "F6: with overlap: skip, a slot adds no run while one has not ended",
    store: over((store) => ({ fireSchedule: (firing) => store.fireSchedule({ ...firing, skipsOverlap: false }) })),
  },
];

function withRun(firing: Firing, change: Partial<NonNullable<Firing["run"]>>): Firing {
  return firing.run === null ? firing : { ...firing, run: { ...firing.run, ...change } };
}
