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
  /** Only runs whose `retriggeredAs` is `null`. */
  notRetried?: boolean;
  /** `total` need not be counted: it is the number of runs up to the end of the page, and one more if `hasMore`. */
  uncounted?: boolean;
}

/** The runs that match a filter. */
export interface FoundRuns extends Omit<RunPage, "runs"> {
  /** The ids of the runs of this page. */
  ids: string[];
  /** Their row numbers, by which {@linkcode RunQuery.before} continues. They grow with each trigger; none is reused. */
  seqs: number[];
}

/** Which stored value to read. */
export type ValuePlace =
  | { of: "run"; runId: string; value: "payload" | "output" }
  | { of: "step"; runId: string; stepName: string; value: "output" }
  | { of: "wait"; waitId: string; value: "metadata" | "payload" };

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
