import { ConflictError, ValidationError } from "../../model/error.ts";
import { HOLD_CODES, type HoldCode } from "../../model/hold.ts";
import { checkName } from "../../values/name.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { StoredRun } from "../../model/run.ts";
import { untilKnown } from "../triggers/until_known.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import { readRun } from "./read_run.ts";

/** How a held run is resumed. */
export interface ResumeOptions {
  /** `continue`: what is new is executed in this run, now and later. Default: it is held again if it diverges again. */
  onDivergence?: "continue";
}

/** Which held runs are resumed, and how. */
export interface ResumeAllOptions extends ResumeOptions {
  /** Those of this job, or of any of these. Default: of all jobs. */
  jobName?: string | readonly string[];
  /** Those that are held for this reason. Default: for any. */
  code?: HoldCode;
}

type HeldRunsDeps = Pick<ExecutionDeps, "store" | "hub"> & {
  /** Called after runs were resumed. */
  onResume: () => void;
};

const RESUME_OPTIONS: Record<keyof ResumeOptions, true> = { onDivergence: true };
const RESUME_ALL_OPTIONS: Record<keyof ResumeAllOptions, true> = { ...RESUME_OPTIONS, jobName: true, code: true };
// How many runs are found at once.
const SLICE = 50;

/** Resumes held runs. */
export class HeldRuns {
  readonly #deps: HeldRunsDeps;

  constructor(deps: HeldRunsDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.resume()`. */
  async resume(runId: string, options: ResumeOptions): Promise<StoredRun> {
    checkOptionNames(options, RESUME_OPTIONS, "resume()");
    const run = await this.#resume(runId, checkContinues(options));
    if (run !== null) return run;
    const { status } = await readRun(this.#deps.store, runId);
    throw new ConflictError(`Cannot resume run "${runId}": it is not held, but ${status}`);
  }

  /** Does `Engine.resumeAll()`. */
  async resumeAll(options: ResumeAllOptions): Promise<{ resumed: number }> {
    checkOptionNames(options, RESUME_ALL_OPTIONS, "resumeAll()");
    const continues = checkContinues(options);
    const { jobName, code } = options;
    const jobNames = typeof jobName === "string" ? [jobName] : jobName;
    for (const name of jobNames ?? []) checkName(name, "jobName of resumeAll()");
    if (code !== undefined && !HOLD_CODES.includes(code)) {
      throw new ValidationError(`code of resumeAll() must be one of ${HOLD_CODES.join(", ")}`);
    }
    let resumed = 0;
    for (let after = 0;;) {
      const { ids, seqs } = await this.#deps.store.findHeld({ jobNames, code, after, limit: SLICE });
      for (const id of ids) if (await this.#resume(id, continues) !== null) resumed += 1;
      if (ids.length < SLICE) return { resumed };
      after = seqs.at(-1)!; // a full slice has a last run
    }
  }

  async #resume(runId: string, continues: boolean): Promise<StoredRun | null> {
    const { store, hub, onResume } = this.#deps;
    const run = await untilKnown(() => store.resumeHeld(runId, continues));
    if (run === null) return null;
    hub.publish(run, { type: "run:resume" });
    onResume();
    return run;
  }
}

function checkContinues({ onDivergence }: ResumeOptions): boolean {
  if (onDivergence === undefined || onDivergence === "continue") return onDivergence === "continue";
  throw new ValidationError('onDivergence of a resumed run can only be "continue"');
}
