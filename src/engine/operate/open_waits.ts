import { ValidationError } from "../../error.ts";
import { type Host, nextTurn } from "../../host.ts";
import type { Json } from "../../json.ts";
import { checkOptionNames } from "../../option_names.ts";
import { type Labels, type ListFilter, matches } from "../../run.ts";
import type { Store } from "../../store.ts";
import type { OpenWaitPlace, OpenWaitRecord } from "../../store/operator_reads.ts";
import { MAX_COUNTED_WAITS, type Wait } from "../../wait.ts";
import { checkRunFilter } from "../run_filter.ts";

/** Which open waits to list. */
export interface OpenWaitsQuery extends ListFilter {
  /** The maximum number of waits, 1 to 1,000. Default 50. */
  limit?: number;
  /** Where to continue: the `next` of an earlier call. */
  cursor?: string;
}

/** A wait that nobody has signalled yet, with its run. */
export interface OpenWait extends Wait {
  /** The name of the run's job. */
  jobName: string;
  /** The labels of the run. */
  labels: Labels;
  /** The JSON schema of the payload that the job asks for; `null`: it is not known. */
  payloadSchema: Json;
}

/** A page of open waits. */
export interface OpenWaitsPage {
  /** The waits, the soonest deadline first, those without one last. */
  waits: OpenWait[];
  /** How many match; `null`: more than 1,000 are open. */
  total: number | null;
  /** Continues the list; `null`: this was the last page. */
  next: string | null;
}

const QUERY: Record<keyof OpenWaitsQuery, true> = { jobName: true, labels: true, limit: true, cursor: true };
const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 1_000;
// So many waits are examined at once, and for so long by one call.
const SLICE = 500;
const MAX_MS = 100;
const CURSOR = /^(-|\d{1,16})\.(\d{1,16})$/;

/** Whether a wait may be shown. It is asked of those that match. */
export type MayShow = (record: OpenWaitRecord) => Promise<boolean>;

/**
 * Lists open waits.
 *
 * @param mayShow `null`: all of them. Otherwise the total is not known: it would say how many there are of others.
 * @throws {ValidationError} A field of the query is not valid.
 */
export async function listOpenWaits(
  query: OpenWaitsQuery,
  { store, host, mayShow }: { store: Pick<Store, "getOpenWaits">; host: Host; mayShow: MayShow | null },
): Promise<OpenWaitsPage> {
  checkOptionNames(query, QUERY, "getOpenWaits()");
  const { limit = DEFAULT_LIMIT, cursor, ...filter } = query;
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT) {
    throw new ValidationError(`limit must be an integer from 1 to ${MAX_LIMIT}`);
  }
  const checked = checkRunFilter(filter);
  let after = cursor === undefined ? null : toPlace(cursor);
  /** Where the list goes on: after a wait that was shown, since the place of another one says something about it. */
  let shownUpTo = after;
  const isWhole = checked.jobName === undefined && checked.labels === undefined && mayShow === null;
  const asked = isWhole ? limit + 1 : SLICE;
  const startedAt = host.monotonic();
  const waits: OpenWait[] = [];
  while (true) {
    const found = await store.getOpenWaits(after, asked);
    const isCounted = mayShow === null && found.total <= MAX_COUNTED_WAITS;
    const total = isWhole && isCounted ? found.total : null;
    for (const record of found.waits) {
      const isShown = matches(record.run, checked) && (mayShow === null || await mayShow(record));
      if (isShown && waits.length === limit) return { waits, total, next: toCursor(shownUpTo!) }; // one was shown
      after = record.place;
      if (!isShown) continue;
      shownUpTo = after;
      waits.push(toOpenWait(record));
    }
    if (found.waits.length < asked) {
      // All open waits were examined, from the first one on.
      return { waits, total: total ?? (isCounted && cursor === undefined ? waits.length : null), next: null };
    }
    if (mayShow !== null) await nextTurn(host);
    if (host.monotonic() - startedAt <= MAX_MS) continue;
    if (mayShow === null) return { waits, total, next: toCursor(after!) }; // the slice was full
    if (waits.length > 0) return { waits, total, next: toCursor(shownUpTo!) }; // one was shown
  }
}

function toOpenWait({ wait, run: { jobName, labels }, payloadSchema }: OpenWaitRecord): OpenWait {
  return { ...wait, jobName, labels, payloadSchema: payloadSchema === null ? null : JSON.parse(payloadSchema) };
}

function toCursor({ deadlineAt, seq }: OpenWaitPlace): string {
  return `${deadlineAt ?? "-"}.${seq}`;
}

function toPlace(cursor: unknown): OpenWaitPlace {
  const found = typeof cursor === "string" ? CURSOR.exec(cursor) : null;
  if (found === null) throw new ValidationError("cursor must be the next of an earlier page");
  return { deadlineAt: found[1] === "-" ? null : Number(found[1]), seq: Number(found[2]) };
}
