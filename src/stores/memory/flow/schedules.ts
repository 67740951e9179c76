import type { Enqueued, NewRun } from "../../../store/new_run.ts";
import type { Firing, ScheduleRecord } from "../../../store/schedule_record.ts";
import type { MemoryRuns } from "../runs.ts";
import { toRunText } from "../copies.ts";

/** The schedules of a memory store. */
export class MemorySchedules {
  readonly #records = new Map<string, ScheduleRecord>();
  readonly #runs: MemoryRuns;

  /** @param runs The runs of the store. */
  constructor(runs: MemoryRuns) {
    this.#runs = runs;
  }

  /** See `Store.getSchedules()`. */
  list(name?: string): ScheduleRecord[] {
    return [...this.#records.values()]
      .filter((record) => name === undefined || record.name === name)
      .sort((one, other) => one.name < other.name ? -1 : 1)
      .map((record) => ({ ...record }));
  }

  /** See `Store.setSchedule()`. */
  set(schedule: Omit<ScheduleRecord, "version">, version: number | null, now: number): ScheduleRecord | null {
    const known = this.#records.get(schedule.name);
    if ((known?.version ?? null) !== version) return null;
    return this.#keep({ ...schedule, version: known === undefined ? now : known.version + 1 });
  }

  /** See `Store.deleteSchedule()`. */
  delete(name: string): boolean {
    const isDeleted = this.#records.delete(name);
    if (isDeleted) this.#runs.countChange();
    return isDeleted;
  }

  /**
   * See `Store.fireSchedule()`.
   *
   * @param enqueue Adds the run.
   */
  fire(
    { schedule: { name, version }, next, run, skipsOverlap, skipped }: Firing,
    enqueue: (run: NewRun) => Enqueued,
  ): { schedule: ScheduleRecord; run: Enqueued | null } | null {
    const known = this.#records.get(name);
    if (known === undefined) return null;
    const added = run === null ? undefined : this.#runs.get(run.id);
    if (added !== undefined) return { schedule: { ...known }, run: { run: toRunText(added), disposition: "created" } };
    if (known.version !== version) return null;
    const enqueued = run === null || (skipsOverlap && this.#hasOpenRun(name)) ? null : enqueue(run);
    const schedule = this.#keep({
      ...known,
      ...next,
      lastRunId: enqueued?.run.id ?? known.lastRunId,
      skipped: known.skipped + skipped + (enqueued === null ? 1 : 0),
      version: known.version + 1,
    });
    return { schedule, run: enqueued };
  }

  #hasOpenRun(name: string): boolean {
    return this.#runs.open.some(({ schedule }) => schedule?.name === name);
  }

  #keep(record: ScheduleRecord): ScheduleRecord {
    this.#records.set(record.name, record);
    this.#runs.countChange();
    return { ...record };
  }
}
