import type { RunFilter, RunPage } from "../model/run.ts";

/** Which runs to find. */
export interface RunQuery extends RunFilter {
  /**
   * The part of the filter that restricts access: the names of labels, and whether the jobs do. A store looks runs up
   * by this part and checks the rest on each of them, so that the time a list takes reveals nothing about other
   * runs.
   */
  scope?: { labels: readonly string[]; jobs: boolean };
  /**
   * Only runs with a smaller row number. The run of this number need not exist any more. Pages that continue after the
   * last row number of the previous one neither repeat nor miss a run, whatever is added or removed meanwhile.
   */
  before?: number;
  /** Only runs whose `retriggeredAs` is `null`, and whose idempotency key no other run has taken. */
  notRetried?: boolean;
  /**
   * Where the count ends, if the page does not end later: default 10,000. 0: `total` is not wanted. A count also ends
   * after 50 ms, once 5,000 runs were examined. A filter by jobs and statuses alone is counted in full, unless it is 0.
   */
  countUpTo?: number;
}

/** The runs that match a filter. `total` counts them up to {@linkcode FoundRuns.countedTo}. */
export interface FoundRuns extends Omit<RunPage, "runs" | "totalIsAtLeast"> {
  /** The ids of the runs of this page. */
  ids: string[];
  /** Their row numbers, by which {@linkcode RunQuery.before} continues. They grow with each trigger; none is reused. */
  seqs: number[];
  /** The row number where the count has ended, with more runs before it; `null`: all were counted. */
  countedTo: number | null;
}

/** Which stored value to read. */
export type ValuePlace =
  | { of: "run"; runId: string; value: "payload" | "output" }
  | { of: "step"; runId: string; stepName: string; value: "output" }
  | { of: "wait"; waitId: string; value: "metadata" | "payload" }
  | { of: "message"; runId: string; messageId: string; value: "payload" };

/** A part of a value. */
export interface ValuePart {
  /** Its JSON in UTF-8, from the requested position on; the caller owns the bytes. */
  bytes: Uint8Array<ArrayBuffer>;
  /** Where the next part begins, in the store's own units (bytes, characters); `null`: this was the last part. */
  next: number | null;
}

/** A part of a list. */
export interface Part<T> {
  /** The records, in their order. */
  items: T[];
  /** Whether more may follow. */
  hasMore: boolean;
}
