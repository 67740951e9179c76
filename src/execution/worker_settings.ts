import { checkName } from "../values/name.ts";
import { type Duration, toMs } from "../values/duration.ts";
import { checkOptionNames, namesOf } from "../values/option_names.ts";
import { withoutUndefined } from "../values/without_undefined.ts";

/** Settings of a worker. */
export interface WorkerOptions {
  /** How often it polls for work when nothing wakes it. Default: 1 second. */
  pollingInterval?: Duration;
  /** How often it renews its leases, at most a third of `staleThreshold`. Default: 5 seconds. */
  heartbeatInterval?: Duration;
  /** How long a lease lasts: after this time another worker can claim the run of a dead worker. Default: 30 seconds. */
  staleThreshold?: Duration;
  /** The maximum number of runs that it executes at the same time. Default 10. */
  concurrency?: number;
  /**
   * A run fails if it is abandoned this many times in a row with nothing recorded in between, those times not counted when
   * its worker held other runs. Default 10.
   */
  maxAbandonments?: number;
  /** A name for operators, such as that of the machine or the container: 1 to 255 characters. Default: none. */
  name?: string;
  /** What identifies the deployed code for operators, such as a version or a commit: 1 to 255 characters. Default: none. */
  deployment?: string;
}

type WorkerNumbers = { [Setting in Exclude<keyof WorkerOptions, "name" | "deployment">]-?: number };

/** All settings of a worker, with the defaults filled in. */
export interface WorkerSettings extends WorkerNumbers {
  /** Its name; `null`: it has none. */
  name: string | null;
  /** What identifies the deployed code; `null`: nothing. */
  deployment: string | null;
}

const DEFAULTS: WorkerNumbers = {
  pollingInterval: 1_000,
  heartbeatInterval: 5_000,
  staleThreshold: 30_000,
  concurrency: 10,
  maxAbandonments: 10,
};

const WORKER_OPTIONS = namesOf<keyof WorkerOptions>()(
  "pollingInterval heartbeatInterval staleThreshold concurrency maxAbandonments name deployment",
);

const LONGEST_MS = 2 ** 30;
const COUNTS: ReadonlySet<string> = new Set(["concurrency", "maxAbandonments"]);

/**
 * Fills in the defaults.
 *
 * @throws {TypeError} A setting is unknown.
 * @throws {RangeError} A setting is not a positive integer, or a lease has no time for two renewals.
 * @throws {ValidationError} `name` or `deployment` is not valid.
 */
export function workerSettings(options: WorkerOptions = {}): WorkerSettings {
  checkOptionNames(options, WORKER_OPTIONS, "worker");
  const { name = null, deployment = null, ...numbers } = options;
  if (name !== null) checkName(name, "worker.name");
  if (deployment !== null) checkName(deployment, "worker.deployment");
  const given = Object.entries<Duration>(withoutUndefined(numbers))
    .map(([setting, value]) => [setting, COUNTS.has(setting) ? value : toMs(value)]);
  const settings: WorkerNumbers = { ...DEFAULTS, ...Object.fromEntries(given) };
  for (const [setting, value] of Object.entries(settings)) {
    if (!Number.isInteger(value) || value < 1 || value > LONGEST_MS) {
      const unit = COUNTS.has(setting) ? "" : ', in milliseconds, or a duration such as "30s"';
      throw new RangeError(`worker.${setting} must be an integer from 1 to ${LONGEST_MS}${unit}, not ${value}`);
    }
  }
  if (settings.heartbeatInterval * 3 > settings.staleThreshold) {
    throw new RangeError(
      `worker.heartbeatInterval (${settings.heartbeatInterval}) must be at most a third of worker.staleThreshold (${settings.staleThreshold})`,
    );
  }
  return { ...settings, name, deployment };
}
