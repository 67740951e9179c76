import { type Host, systemHost } from "../../../model/host.ts";
import type { StoreCondition } from "../../../statistics/measured_store.ts";
import type { ProcessMetrics, SecondsHistogram } from "../../../statistics/process_metrics.ts";
import type { StoreInfo } from "../../../store/operate.ts";
import { type Health, HealthChecks, type ProcessCondition } from "../health.ts";
import type { JobInfo } from "../job_info.ts";
import type { Operator } from "../operator.ts";
import { StatisticsReporter } from "./statistics_reporter.ts";
import type { WorkerInfo } from "../worker_info.ts";
import type { ExecutionDeps } from "../../../execution/execution.ts";

/** All that metrics are made of. */
export interface MetricsSource {
  /** What this process has counted. */
  process: ProcessMetrics;
  /** The jobs of the store. */
  jobs: readonly JobInfo[];
  /** The workers of the store. */
  workers: readonly WorkerInfo[];
  /** The store. */
  info: StoreInfo;
  /** The slots of the worker of this process. */
  slots: { busy: number; free: number };
  /** The rows of the outboxes that need attention, by the names of data sources. */
  stuckRows: ProcessCondition["stuckRows"];
  /** The instant of the store's clock, in milliseconds. */
  now: number;
}

/** The state of an engine, as far as it decides about the health of the process. */
export type EngineCondition = Pick<
  ProcessCondition,
  "worker" | "failedClaims" | "isStopping" | "keepsRuns" | "stuckRows"
>;

type MonitorDeps = Pick<ExecutionDeps, "store" | "host" | "recorder"> & {
  operator: Operator;
  /** What calls to the store have shown. */
  storeCondition: StoreCondition;
  /** The state of the engine. */
  lookAtEngine: () => EngineCondition;
  /** The slots of the current worker. */
  slots: () => { busy: number; free: number };
  /** Takes work that a stop waits for. */
  inBackground: (work: Promise<unknown>) => void;
};

/** Watches one process: writes what it has counted, and reports its health and its metrics. */
export class Monitor {
  readonly #deps: MonitorDeps;
  readonly #reporter: StatisticsReporter;
  readonly #eventLoop: EventLoopDelay;
  readonly #checks: HealthChecks;

  constructor(deps: MonitorDeps) {
    this.#deps = deps;
    this.#reporter = new StatisticsReporter(deps);
    this.#eventLoop = new EventLoopDelay(deps.host, deps.recorder.metrics.eventLoopDelay);
    this.#checks = new HealthChecks({
      host: deps.host,
      look: () => ({
        ...deps.lookAtEngine(),
        ...deps.storeCondition,
        eventLoopDelayMs: this.#eventLoop.longestMs,
        statisticsError: this.#reporter.error,
      }),
      readStore: () => this.#readStore(),
    });
  }

  /** Writes statistics and measures the event loop from now on. */
  start(): void {
    this.#reporter.start();
    // With another host, time passes as a test says, and nothing is late.
    if (this.#deps.host === systemHost) this.#eventLoop.start();
  }

  /** Ends both; writes what is left. */
  async stop(): Promise<void> {
    this.#eventLoop.stop();
    await this.#reporter.stop();
  }

  /** Writes what was counted, unless that was done within the last second. */
  reportIdle(): Promise<void> {
    return this.#reporter.reportIdle();
  }

  /** Notes that something was counted. */
  noteRecord(): void {
    this.#reporter.noteRecord();
  }

  /** Does `Engine.health()`. */
  health(): Promise<Health> {
    return this.#checks.health();
  }

  /** The part of the health that is known without a call to the store. */
  liveness(): Health {
    return this.#checks.liveness();
  }

  /** What metrics are made of. */
  async metrics(): Promise<MetricsSource> {
    const { recorder, slots, lookAtEngine } = this.#deps;
    const { stuckRows } = lookAtEngine();
    return { process: recorder.metrics, slots: slots(), stuckRows, ...await this.#readStore() };
  }

  async #readStore(): Promise<Pick<MetricsSource, "jobs" | "workers" | "info" | "now">> {
    const { operator } = this.#deps;
    const [jobs, workers, info, now] = await Promise.all([
      operator.getJobs(),
      operator.getWorkers(),
      operator.getStoreInfo(),
      operator.now(),
    ]);
    return { jobs, workers, info, now };
  }
}

const LOOK_EVERY_MS = 1_000;
const REMEMBERED_MS = 60_000;

/** Measures how late a timer fires that is due each second: for that long the event loop was blocked. */
class EventLoopDelay {
  readonly #host: Host;
  readonly #histogram: SecondsHistogram;
  #cancelTimer: (() => void) | null = null;
  /** The longest delays of the last minute, the longest first, each with when it was measured. */
  #longest: { at: number; ms: number }[] = [];

  constructor(host: Host, histogram: SecondsHistogram) {
    this.#host = host;
    this.#histogram = histogram;
  }

  /** The longest delay within the last minute, in milliseconds. */
  get longestMs(): number {
    this.#forgetOld();
    return this.#longest[0]?.ms ?? 0;
  }

  /** Begins to measure. */
  start(): void {
    if (this.#cancelTimer === null) this.#schedule();
  }

  /** Ends measuring. */
  stop(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  #schedule(): void {
    const dueAt = this.#host.monotonic() + LOOK_EVERY_MS;
    this.#cancelTimer = this.#host.schedule(LOOK_EVERY_MS, () => {
      const at = this.#host.monotonic();
      const ms = Math.max(0, at - dueAt);
      this.#histogram.add(ms);
      this.#longest = [...this.#longest.filter((delay) => delay.ms > ms), { at, ms }];
      this.#forgetOld();
      this.#schedule();
    });
  }

  #forgetOld(): void {
    const oldest = this.#host.monotonic() - REMEMBERED_MS;
    this.#longest = this.#longest.filter(({ at }) => at > oldest);
  }
}
