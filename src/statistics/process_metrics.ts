/** Numbers by the value of one label. */
class Counter {
  /** The numbers. */
  readonly values = new Map<string, number>();

  /** Adds one. */
  add(label: string): void {
    this.values.set(label, (this.values.get(label) ?? 0) + 1);
  }

  /** Adds the numbers of another one. */
  addAll(other: Counter): void {
    for (const [label, count] of other.values) this.values.set(label, (this.values.get(label) ?? 0) + count);
  }
}

/** What a process has counted of one job since it began. */
export class JobMetrics {
  /** Triggers, by disposition. */
  readonly triggers = new Counter();
  /** Runs that ended, by status. */
  readonly ended = new Counter();
  /** Executions that ended, by outcome. */
  readonly executions = new Counter();
  /** Attempts at steps that ended, by outcome. */
  readonly steps = new Counter();
  /** Waits that ended, by outcome. */
  readonly waits = new Counter();
  /** Items that were stored of streams, and their bytes. */
  readonly streamed = { items: 0, bytes: 0 };
  /** How long runs were due before they started. */
  readonly startDelay = new SecondsHistogram();
  /** How long runs took, pauses included. */
  readonly duration = new SecondsHistogram();
  /** How long attempts at steps took. */
  readonly stepDuration = new SecondsHistogram();

  /** Adds the counts of another job. */
  addAll(other: JobMetrics): void {
    for (const name of ["triggers", "ended", "executions", "steps", "waits"] as const) this[name].addAll(other[name]);
    for (const name of ["items", "bytes"] as const) this.streamed[name] += other.streamed[name];
    for (const name of ["startDelay", "duration", "stepDuration"] as const) this[name].addAll(other[name]);
  }
}

/** What a process has counted since it began. */
export class ProcessMetrics {
  /** By the name of the job. */
  readonly jobs = new Map<string, JobMetrics>();
  /** Errors of the store, by code. */
  readonly storeErrors = new Counter();
  /** How long each call to the store took. */
  readonly storeCalls = new Map<string, SecondsHistogram>();
  /** How late timers of the event loop were. */
  readonly eventLoopDelay = new SecondsHistogram();
  /** How many executions ended because their lease was lost. */
  leasesLost = 0;

  /** Adds a call to the store, which counts for `weight` calls. */
  noteStoreCall(call: string, ms: number, weight: number): void {
    let histogram = this.storeCalls.get(call);
    if (histogram === undefined) this.storeCalls.set(call, histogram = new SecondsHistogram());
    histogram.add(ms, weight);
  }
}

/** The upper bounds of the buckets of histograms for metrics, in seconds. */
export const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600, 86_400];

/** Durations in buckets, as a metric shows them. */
export class SecondsHistogram {
  /** How many durations are in each bucket; the last one has those above all bounds. */
  readonly counts: number[] = new Array(SECONDS.length + 1).fill(0);
  /** The sum of the durations, in seconds. */
  sum = 0;

  /** Adds a duration in milliseconds, which counts for `weight` durations. */
  add(ms: number, weight = 1): void {
    const seconds = ms / 1_000;
    let bucket = 0;
    while (bucket < SECONDS.length && seconds > SECONDS[bucket]!) bucket++;
    this.counts[bucket]! += weight;
    this.sum += seconds * weight;
  }

  /** Adds the durations of another one. */
  addAll(other: SecondsHistogram): void {
    for (const [bucket, count] of other.counts.entries()) this.counts[bucket]! += count;
    this.sum += other.sum;
  }
}
