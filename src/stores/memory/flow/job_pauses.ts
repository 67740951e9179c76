import type { JobPause } from "../../../store/job_pause.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { MemoryRuns } from "../runs.ts";

/** The paused jobs of a memory store. */
export class MemoryJobPauses {
  readonly #byName = new Map<string, JobPause>();
  readonly #runs: MemoryRuns;

  /** @param runs The runs of the store. */
  constructor(runs: MemoryRuns) {
    this.#runs = runs;
  }

  /** The pauses by the names of the jobs. */
  get byName(): ReadonlyMap<string, JobPause> {
    return this.#byName;
  }

  /** See `Store.pauseJob()`. */
  pause(jobName: string, { by, note }: Pick<JobPause, "by" | "note">, now: number): JobPause {
    const known = this.#byName.get(jobName);
    if (known !== undefined) return { ...known };
    const pause = { jobName, since: isoTime(now), by, note };
    this.#byName.set(jobName, pause);
    this.#runs.countChange();
    return { ...pause };
  }

  /** See `Store.resumeJob()`. */
  resume(jobName: string): boolean {
    const wasPaused = this.#byName.delete(jobName);
    if (wasPaused) this.#runs.countChange();
    return wasPaused;
  }

  /** The pauses of jobs, by their names. */
  list(): JobPause[] {
    return [...this.#byName.values()]
      .sort((left, right) => left.jobName < right.jobName ? -1 : 1)
      .map((pause) => ({ ...pause }));
  }
}
