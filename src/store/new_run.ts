import type { NewEnd } from "../model/end.ts";
import type { Flow } from "../model/flow.ts";
import type { JsonText } from "../values/json.ts";
import type { OriginText } from "../model/origin.ts";
import type { Coalesce, Disposition, Labels, RetriggerFrom, StoredRun } from "../model/run.ts";

/** A run to add. */
export interface NewRun {
  /** A UUIDv7. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** The version of its job: an integer from 1. */
  version: number;
  /** Other names of its job: runs with these names count for idempotency keys, coalescing and children, too. */
  aliases: readonly string[];
  /** The print of the schema that parsed the input; `null`: the schema has none. */
  schemaPrint: string | null;
  /** The input that was given to the trigger. */
  payload: JsonText | null;
  /** The input as parsed by the schema: what the job's function receives. */
  input: JsonText | null;
  /** Its labels. */
  labels: Labels;
  /** If a run of the same job has this key, that run is returned instead; `null`: it has no key. */
  idempotencyKey: string | null;
  /**
   * Which runs with the key count: those that have not ended, or that have not failed or been cancelled, or that were
   * triggered less than so many milliseconds ago. Left out: any.
   */
  idempotencyUntil?: "ended" | "failed" | number;
  /** Runs with this key, of all jobs, are executed one after another; `null`: it has no key. */
  concurrencyKey: string | null;
  /** What to do if the concurrency key has runs of this job already; `null`: add another. */
  coalesce: Coalesce | null;
  /**
   * The id of the only run that it may join by coalescing. Another one is returned as `coalesced`, but nothing is
   * written. Left out: any.
   */
  joinOnly?: string;
  /** The run that has ended of which this one is a retry; `null` if it is none. */
  retriggerOf: { runId: string; from: RetriggerFrom } | null;
  /** When, in which order and under which limits it is executed. */
  flow: Flow;
  /**
   * The schedule that makes it, and the slot: `slotAt` in ISO 8601 and UTC, `null` if the schedule was triggered without
   * one; `slot` as the engine describes it, which no store reads. A retry has the `slot` of the old run. `null`: it is
   * made by a trigger, or by a parent.
   */
  schedule: { name: string; slotAt: string | null; slot?: JsonText } | null;
  /** The run that is added in the commit that ends it; left out: none. */
  onEnd?: NewEnd;
  /** The origin of its trigger: trace and actor. `null`: it has neither. */
  trace: OriginText | null;
}

/** The result of a request to add a run. */
export interface Enqueued {
  /** The new run, or the existing one. */
  run: StoredRun;
  /** Whether the run is new, and if not, why it was returned. */
  disposition: Disposition;
}
