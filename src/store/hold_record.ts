import type { NewEnd } from "../model/end.ts";
import type { Held, HoldCode, HoldDetails, RecordName } from "../model/hold.ts";
import type { JsonText } from "../values/json.ts";
import type { StoredRun } from "../model/run.ts";
import type { StepRecord } from "../model/step.ts";
import type { PauseRecord } from "../model/wait.ts";

/** A request to hold a run. */
export interface NewHold {
  /** Why. */
  code: HoldCode;
  /** Why, in words. */
  message: string;
  /** Which names diverged. */
  details: HoldDetails;
  /** The print of the code that could not go on. */
  print: string;
}

/** A hold as a store keeps it. */
export interface HoldRecord extends Held {
  /** Which names diverged. */
  details: HoldDetails;
  /** The prints of the code that has tried to go on since the run last recorded something, in the order of the tries. */
  prints: readonly string[];
}

/** Which held runs to find. */
export interface HeldQuery {
  /** Runs of these jobs, by their exact names; left out: of all. */
  jobNames?: readonly string[];
  /** Runs with this code; left out: any. */
  code?: HoldCode;
  /** Only runs with a larger row number. */
  after: number;
  /** The maximum number of runs. */
  limit: number;
}

/** All that a replay of a run needs, and how the run ended. */
export interface RunHistory {
  /** The run. */
  run: StoredRun;
  /** The input that the job's function receives. */
  input: JsonText | null;
  /** The print of the schema that parsed its input; `null`: the schema had none. */
  schemaPrint: string | null;
  /** What the engine has stored of the slot of its schedule; `null`: nothing. */
  slot: JsonText | null;
  /** The recorded steps, in any order, but for those that were cancelled. */
  steps: StepRecord[];
  /** All its pauses, in the order in which they were prepared. */
  pauses: PauseRecord[];
  /** What it has as copies; `null`: it is no retry from the failure. */
  copied: CopiedHistory | null;
  /** The first run of the chain of retries from the failure to which it belongs; its own id without one. */
  originId: string;
  /** How it is cleaned up after (`NewRun.onEnd`); `null`: it is not. */
  onEnd: NewEnd | null;
}

/** The part of a history that a retry from the failure has taken over. */
export interface CopiedHistory {
  /** Records up to this position are copies. */
  upTo: number;
  /**
   * What the earlier runs of the chain had begun and not completed, in any order, each once: failed and cancelled steps,
   * steps between two attempts, open waits and sleeps, the wait whose end was their last record, children that did not all complete.
   * What a later run of the chain has completed stays.
   */
  unfinished: readonly RecordName[];
  /**
   * The steps that end runs have undone, in this chain, with the id of the end run that did: it is part of their new
   * idempotency keys. Left out: none.
   */
  undone?: { readonly [stepName: string]: string };
}
