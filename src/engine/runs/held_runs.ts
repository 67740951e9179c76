import { ConflictError, ValidationError } from "../../model/error.ts";
import { type ActorOptions, readActor } from "../../model/origin.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { StoredRun } from "../../model/run.ts";
import { untilKnown } from "../triggers/until_known.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import { readRun } from "./read_run.ts";

/** How a held run is resumed. */
export interface ResumeOptions extends ActorOptions {
  /** `continue`: what is new is executed in this run, now and later. Default: it is held again if it diverges again. */
  onDivergence?: "continue";
}

type HeldRunsDeps = Pick<ExecutionDeps, "store" | "hub"> & {
  /** Called after runs were resumed. */
  onResume: () => void;
};

/** The names of the options of a resumption. */
export const RESUME_OPTIONS: Record<keyof ResumeOptions, true> = { onDivergence: true, by: true };

/** Resumes held runs. */
export class HeldRuns {
  readonly #deps: HeldRunsDeps;

  constructor(deps: HeldRunsDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.resume()`. */
  async resume(runId: string, options: ResumeOptions): Promise<StoredRun> {
    checkOptionNames(options, RESUME_OPTIONS, "resume()");
    return await this.resumeOne(runId, checkContinues(options), readActor(options));
  }

  /** Resumes a held run, as `Engine.resume()` does. */
  async resumeOne(runId: string, continues: boolean, by: string | null): Promise<StoredRun> {
    const { store, hub, onResume } = this.#deps;
    const run = await untilKnown(() => store.resumeHeld(runId, continues, by));
    if (run === null) {
      const { status } = await readRun(store, runId);
      throw new ConflictError(`Cannot resume run "${runId}": it is not held, but ${status}`);
    }
    hub.publish(run, { type: "run:resume", by });
    onResume();
    return run;
  }
}

/** Whether a resumed run goes on with what is new. */
export function checkContinues({ onDivergence }: ResumeOptions): boolean {
  if (onDivergence === undefined || onDivergence === "continue") return onDivergence === "continue";
  throw new ValidationError('onDivergence of a resumed run can only be "continue"');
}
