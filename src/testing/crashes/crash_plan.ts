import type { Duration } from "../../values/duration.ts";
import type { EngineOptions } from "../../engine/engine_options.ts";
import type { Jobs } from "../../engine/job_handle.ts";
import type { Job } from "../../model/job.ts";
import type { Json } from "../../values/json.ts";
import type { TerminalStatus } from "../../model/run.ts";

/** What goes wrong at a checkpoint. */
export type CrashMode = "dies before" | "dies after" | "answer lost" | "overtaken before" | "overtaken after";

/** All modes. */
export const CRASH_MODES: readonly CrashMode[] = [
  "dies before",
  "dies after",
  "answer lost",
  "overtaken before",
  "overtaken after",
];

/** What each execution gets. */
export interface CrashKit {
  /**
   * Returns the same object; each call of one of its methods by a job is a checkpoint, too. So a crash also comes
   * between two effects of one step.
   */
  world<T extends object>(world: T): T;
}

/** What is executed again and again. */
export interface CrashPlan<Input = unknown> {
  /** The job. */
  job: Job<Input>;
  /** The input. */
  input: NoInfer<Input>;
  /** Other jobs that it invokes or triggers. */
  jobs?: Jobs;
  /**
   * The data sources of the jobs. Their tables must be empty when an execution begins, `holdfast_effects` included: the
   * ids of runs are the same in each.
   */
  dataSources?: NonNullable<EngineOptions<Jobs>["dataSources"]>;
  /** The payloads that its waits get, by their names; `review#2` is for the second one of this name alone. */
  signals?: Readonly<Record<string, Json>>;
  /**
   * The messages that it is sent, in this order: those that are `early` before it begins, the others one by one, when it
   * waits for a message.
   */
  messages?: readonly CrashMessage[];
  /** Replacements of functions of steps, by their names: a value that is returned, or a function that is called. */
  fakes?: Readonly<Record<string, unknown>>;
  /** What the world looks like afterwards. Arrays are compared without their order, unless `ordered` is set. */
  observe?: () => unknown;
}

/** A message that is sent to the run. */
export interface CrashMessage {
  /** One of the `messages` of the job. */
  name: string;
  /** Its payload. */
  payload: Json;
  /** Whether it comes before the run begins. Default: no. */
  early?: boolean;
}

/** Options of {@linkcode crashAtEveryCheckpoint}. */
export interface CrashOptions {
  /** What goes wrong: at least one mode. Default: all modes. */
  modes?: readonly CrashMode[];
  /** How the run ends without crashes. Default: `completed`. */
  expected?: TerminalStatus;
  /** The maximum number of executions, 2 or more: the first one is without crashes. Default: 2,000. */
  most?: number;
  /** Whether the order of what `observe()` returns counts. Default: no. */
  ordered?: boolean;
  /** For how many milliseconds of real time a function of a step may hang before time moves on. Default: 200. */
  patience?: Duration;
}

/** A checkpoint of the execution without crashes. */
export interface CheckpointKey {
  /** What it is: `record "charge"`. */
  name: string;
  /** 1 for the first such checkpoint of the execution. */
  no: number;
  /**
   * `record`: a write under the lease. `claim`: the answer of a claim. `call`: a call of the world. `commit`: that of a
   * transaction in a database, before its record.
   */
  kind: "record" | "claim" | "call" | "commit";
  /** The step that it belongs to; `null`: none. */
  stepName: string | null;
}

/** A checkpoint, and what goes wrong there. */
export interface PlannedCrash extends CheckpointKey {
  /** What goes wrong. */
  mode: CrashMode;
}

const MODES_OF: Readonly<Record<CheckpointKey["kind"], readonly CrashMode[]>> = {
  record: CRASH_MODES,
  // What dies before the commit of its claim, or is overtaken there, has claimed nothing.
  claim: ["dies after", "answer lost", "overtaken after"],
  call: ["dies before", "dies after"],
  commit: ["dies before"], // what comes after it is the record
};

/** The crashes at some checkpoints, the first of each kind in front. */
export function planCrashes(checkpoints: readonly CheckpointKey[], modes: readonly CrashMode[]): PlannedCrash[] {
  const crashes = checkpoints.flatMap((checkpoint) =>
    MODES_OF[checkpoint.kind].filter((mode) => modes.includes(mode)).map((mode) => ({ ...checkpoint, mode }))
  );
  const seen = new Map<string, number>();
  const ranked = crashes.map((crash) => {
    const kind = `${crash.mode} ${crash.name.replaceAll(/#?\d+/g, "")}`;
    const rank = seen.get(kind) ?? 0;
    seen.set(kind, rank + 1);
    return { crash, rank };
  });
  return ranked.toSorted((one, other) => one.rank - other.rank).map(({ crash }) => crash);
}
