import type { Job } from "../../model/job.ts";
import { readDuration } from "../../values/duration.ts";
import { checkOptionNames, namesOf } from "../../values/option_names.ts";
import { type CrashResult, executeWith } from "./crash_execution.ts";
import {
  CRASH_MODES,
  type CrashKit,
  type CrashMode,
  type CrashOptions,
  type CrashPlan,
  planCrashes,
} from "./crash_plan.ts";
import { CrashFindings, type CrashReport } from "./crash_report.ts";

/** A world that lives outside of the test, for the short form of {@linkcode crashAtEveryCheckpoint}. */
export interface Effects {
  /** Empties it, before each execution. */
  reset(): unknown;
  /** What it looks like. */
  read(): unknown;
}

/** What the short form of {@linkcode crashAtEveryCheckpoint} takes. */
export interface ShortCrashOptions extends CrashOptions, Pick<CrashPlan, "jobs" | "signals" | "messages" | "fakes"> {
  /** The outside world. */
  effects?: Effects;
}

const OPTIONS = namesOf<keyof CrashOptions>()("modes expected most ordered patience");
const SHORT_OPTIONS = namesOf<keyof ShortCrashOptions>()(
  "modes expected most ordered patience jobs signals messages fakes effects",
);

/**
 * Executes a job without crashes, and then once for each checkpoint and each mode of crash, and compares what the run has
 * returned, what it has recorded, and what the world looks like.
 *
 * A checkpoint is a claim, a record of a step or a pause, the ending, and each call of a `world`. Time moves to whatever
 * is due, waits get their `signals`, and the run its `messages`. If the job has `onEnd`, the run that cleans up is executed
 * to its end, too.
 *
 * @param setUp Called anew for each execution.
 * @throws {Error} The execution without crashes does not end as `expected`, or does not use one of the fakes or signals.
 * @throws {TypeError} An option, or a mode, is unknown.
 * @throws {RangeError} `most` allows no crash, or `patience` is negative.
 */
export async function crashAtEveryCheckpoint<Input>(
  setUp: (kit: CrashKit) => CrashPlan<Input>,
  options?: CrashOptions,
): Promise<CrashReport>;
/** The short form, for a job whose world is elsewhere. */
export async function crashAtEveryCheckpoint<Input>(
  job: Job<Input>,
  input: NoInfer<Input>,
  options?: ShortCrashOptions,
): Promise<CrashReport>;
export async function crashAtEveryCheckpoint(subject: unknown, ...rest: unknown[]): Promise<CrashReport> {
  // The overloads say what the arguments are.
  if (typeof subject === "function") {
    const [options = {}] = rest as [CrashOptions?];
    checkOptionNames(options, OPTIONS, "crashAtEveryCheckpoint()");
    return await crashEverywhere(subject as (kit: CrashKit) => CrashPlan, () => {}, options);
  }
  const [input, options = {}] = rest as [unknown, ShortCrashOptions?];
  checkOptionNames(options, SHORT_OPTIONS, "crashAtEveryCheckpoint()");
  const { effects, jobs, signals, messages, fakes, ...others } = options;
  const plan = {
    job: subject as Job,
    input,
    jobs,
    signals,
    messages,
    fakes,
    observe: effects && (() => effects.read()),
  };
  return await crashEverywhere(() => plan, () => effects?.reset(), others);
}

async function crashEverywhere(
  setUp: (kit: CrashKit) => CrashPlan,
  reset: () => unknown,
  { modes = CRASH_MODES, expected = "completed", most = 2_000, ordered = false, patience = 200 }: CrashOptions,
): Promise<CrashReport> {
  checkModes(modes);
  if (!Number.isInteger(most) || most < 2) {
    throw new RangeError(`most must be a whole number of 2 or more, not ${most}`);
  }
  const patienceMs = readDuration(patience, "patience");
  await reset();
  const baseline = await executeWith(setUp, null, patienceMs);
  checkBaseline(baseline, expected);
  const crashes = planCrashes(baseline.checkpoints, modes);
  const findings = new CrashFindings(baseline, { leftOut: crashes.slice(most - 1), ordered });
  for (const crash of crashes.slice(0, most - 1)) {
    await reset();
    findings.add(crash, await executeWith(setUp, crash, patienceMs));
  }
  return findings;
}

/** Without any crash, or with none that exists, every job would pass. */
function checkModes(modes: readonly CrashMode[]): void {
  if (modes.length === 0) throw new TypeError("modes must name at least one mode");
  const unknown = modes.find((mode) => !CRASH_MODES.includes(mode));
  if (unknown === undefined) return;
  throw new TypeError(`There is no mode ${JSON.stringify(unknown)}; there are: ${CRASH_MODES.join(", ")}`);
}

/** A job that cannot be executed at all is the same after each crash: that is no success. */
function checkBaseline({ ended, reason, outcome, errors, unused, trace }: CrashResult, expected: string): void {
  if (ended === "stuck") {
    throw new Error(`Nothing is ever due: ${reason} (signals: { name: payload }, or messages)\n${trace}`);
  }
  if (errors.length > 0) throw new Error(`A worker has reported without a crash: ${errors[0]}\n${trace}`);
  if (unused.length > 0) throw new Error(`${unused[0]}\n${trace}`);
  if (ended === expected) return;
  const how = ended === "held" ? `is held: ${reason}` : `${ended}${ended === "failed" ? `: ${outcome}` : ""}`;
  throw new Error(
    `The crash-free execution ${how}; say expected: ${JSON.stringify(ended)} if that is what it should do\n${trace}`,
  );
}
