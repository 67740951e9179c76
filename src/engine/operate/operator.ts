import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { Counts, StoreInfo, WorkerList } from "../../store/operate.ts";
import {
  type HeldInfo,
  type JobInfo,
  type JobSources,
  ratesOf,
  sumCounts,
  sumHeld,
  toJobInfo,
  toJobInfos,
  toOther,
} from "./job_info.ts";
import { RecentStatistics, type Windows } from "./statistics/recent_statistics.ts";
import { checkSeriesQuery, type Series, type SeriesQuery, SeriesReader } from "./statistics/series.ts";
import { SharedRead } from "./shared_read.ts";
import { stateOf, toWorkerInfo, type WorkerInfo } from "./worker_info.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";

/** The numbers of a store. */
export interface Stats {
  /** When they were read, by the store's clock: ISO 8601 in UTC. */
  at: string;
  /** How many runs there are. */
  total: number;
  /** How many runs have each status. */
  byStatus: Counts;
  /** How many runs are held, and since when the first of them is; `null`: none. */
  held: HeldInfo | null;
  /** How many runs live workers can execute at the same time, and how many are under their leases. */
  slots: { total: number; busy: number };
  /** What happened to all runs lately. */
  windows: Windows;
  /** When the next sleep, wait, retry delay, delayed start or deadline of a run ends: ISO 8601 in UTC; `null`: none. */
  nextTimerAt: string | null;
  /** The jobs by name, as `getJobs()` lists them. Above 100, those that were triggered least are added up as `other`. */
  jobs: JobInfo[];
}

type OperatorDeps = Pick<ExecutionDeps, "store" | "host"> & { catalog: JobCatalog };

/** All that was read at one moment. */
interface Snapshot extends JobSources {
  /** The jobs, by name. */
  infos: JobInfo[];
  /** What happened to all runs lately. */
  windows: Windows;
}

/** Reads the numbers that operators see. Callers within a second share one result. */
export class Operator {
  readonly #deps: OperatorDeps;
  readonly #recent: RecentStatistics;
  readonly #snapshots: SharedRead<Snapshot>;
  readonly #info: SharedRead<StoreInfo>;
  readonly #series = new Map<string, SharedRead<Series>>();

  constructor(deps: OperatorDeps) {
    this.#deps = deps;
    this.#recent = new RecentStatistics(deps.store);
    this.#snapshots = new SharedRead(deps.host, async () => {
      const sources = await this.#readSources();
      return { ...sources, infos: toJobInfos(sources), windows: sources.windowsOf([""]) };
    });
    this.#info = new SharedRead(deps.host, () => deps.store.getInfo());
  }

  /** Does `Engine.getStats()`. */
  async getStats(): Promise<Stats> {
    const { list, workers, infos, windows, windowsOf } = await this.#snapshots.get();
    const byStatus = sumCounts(list.jobs.map((job) => job.byStatus));
    return {
      at: isoTime(list.now),
      total: Object.values(byStatus).reduce((sum, runs) => sum + runs, 0),
      byStatus,
      held: sumHeld(infos),
      slots: countSlots(workers),
      windows,
      nextTimerAt: isoTime(list.nextTimerAt),
      jobs: withOther(infos, windowsOf),
    };
  }

  /** Does `Engine.getJobs()`. */
  async getJobs(): Promise<JobInfo[]> {
    return (await this.#snapshots.get()).infos;
  }

  /** The state of one job, read now. */
  async getJob(jobName: string): Promise<JobInfo> {
    this.#snapshots.forget();
    return toJobInfo(jobName, await this.#readSources());
  }

  /** Does `Engine.getWorkers()`. */
  async getWorkers(): Promise<WorkerInfo[]> {
    const { workers: { workers, now } } = await this.#snapshots.get();
    return workers.map((worker) => toWorkerInfo(worker, now));
  }

  /** Does `Engine.getSeries()`. */
  async getSeries(query: SeriesQuery): Promise<Series> {
    const checked = checkSeriesQuery(query);
    const key = JSON.stringify(checked);
    const shared = this.#series.get(key) ?? this.#newSeries(checked);
    this.#series.delete(key);
    this.#series.set(key, shared);
    for (const oldest of this.#series.keys()) {
      if (this.#series.size <= MAX_SERIES) break;
      this.#series.delete(oldest);
    }
    return await shared.get();
  }

  #newSeries(query: Required<SeriesQuery>): SharedRead<Series> {
    const reader = new SeriesReader(this.#deps.store, query);
    return new SharedRead(this.#deps.host, async () => await reader.read(await this.now()));
  }

  /** Does `Engine.getStoreInfo()`. */
  getStoreInfo(): Promise<StoreInfo> {
    return this.#info.get();
  }

  /** An instant of the store's clock, a second old at most. */
  async now(): Promise<number> {
    return (await this.#snapshots.get()).list.now;
  }

  async #readSources(): Promise<JobSources> {
    const { catalog, store } = this.#deps;
    const [list, workers] = await Promise.all([
      store.getJobs(ratesOf(catalog)),
      store.getWorkers(),
    ]);
    await this.#recent.read(list.now);
    const windowsOf = (jobNames: readonly string[]) => this.#recent.windows(jobNames, list.now);
    return { catalog, list, workers, windowsOf };
  }
}

// How many series are remembered, with what they have read.
const MAX_SERIES = 20;
// How many jobs are shown by name.
const MAX_NAMED_JOBS = 100;

function countSlots({ workers, now }: WorkerList): Stats["slots"] {
  const active = workers.filter((worker) => stateOf(worker, now) !== "lost");
  const live = active.filter((worker) => stateOf(worker, now) === "live");
  return {
    total: live.reduce((sum, { details }) => sum + details.concurrency, 0),
    busy: active.reduce((sum, { leases }) => sum + leases, 0),
  };
}

/** At most 100 jobs by name; those of more that were triggered least are added up as `other`. */
function withOther(infos: readonly JobInfo[], windowsOf: JobSources["windowsOf"]): JobInfo[] {
  if (infos.length <= MAX_NAMED_JOBS) return [...infos];
  const byTriggers = [...infos].sort((one, other) => other.windows["1h"].triggered - one.windows["1h"].triggered);
  const named = new Set(byTriggers.slice(0, MAX_NAMED_JOBS));
  const others = infos.filter((info) => !named.has(info));
  return [...infos.filter((info) => named.has(info)), toOther(others, windowsOf)];
}
