import { ValidationError } from "../../model/error.ts";
import { type Host, nextTurn } from "../../model/host.ts";
import type { Json } from "../../values/json.ts";
import { checkInteger } from "../../values/integer.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { type Labels, type ListFilter, matches, type RunIdentity } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { OpenWaitPlace, OpenWaitRecord } from "../../store/operator_reads.ts";
import { MAX_COUNTED_WAITS, type Wait } from "../../model/wait.ts";
import { checkRunFilter } from "../runs/run_filter.ts";

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
const CURSOR = /^(-|\d{1,16})\.(\d{1,16}|[0-9A-Za-z_-]{1,128})$/;

/** Which waits a caller may see. */
export interface WaitAccess {
  /** Whether the caller may list the run of a wait. */
  isInScope: (run: RunIdentity) => Promise<boolean>;
  /** Whether the caller may see a wait of such a run. */
  mayShow: (record: OpenWaitRecord) => Promise<boolean>;
}

/** The dependencies of {@linkcode listOpenWaits}. */
interface OpenWaitsDeps {
  /** Where the waits are. */
  store: Pick<Store, "getOpenWaits">;
  /** Time. */
  host: Host;
  /** What the caller may see; `null`: all waits. Otherwise the total is not known: it would count those of others. */
  access: WaitAccess | null;
}

/**
 * Lists open waits. After 100 ms it returns what it has, which may be nothing, and where to continue. The list continues
 * after a wait in the caller's scope: the place of another one would say something about it. So it goes on for longer
 * while it finds none, at some 2 ms for 500 waits.
 *
 * @throws {ValidationError} A field of the query is not valid.
 */
export async function listOpenWaits(
  query: OpenWaitsQuery,
  { store, host, access }: OpenWaitsDeps,
): Promise<OpenWaitsPage> {
  checkOptionNames(query, QUERY, "getOpenWaits()");
  const { limit: _, cursor: __, ...filter } = query;
  const { limit = DEFAULT_LIMIT, cursor } = query;
  checkInteger(limit, "limit", 1, MAX_LIMIT);
  const checked = checkRunFilter(filter);
  const start = cursor === undefined ? null : toPlace(cursor);
  let after = start;
  /** Where the list continues. */
  let place = start;
  const isWhole = checked.jobName === undefined && checked.labels === undefined && access === null;
  const asked = isWhole ? limit + 1 : SLICE;
  const startedAt = host.monotonic();
  const isLate = () => host.monotonic() - startedAt > MAX_MS && place !== start;
  const waits: OpenWait[] = [];
  while (true) {
    const found = await store.getOpenWaits(after, asked);
    const isCounted = access === null && found.total <= MAX_COUNTED_WAITS;
    const total = isWhole && isCounted ? found.total : null;
    for (const record of found.waits) {
      after = record.place;
      if (access !== null && !await access.isInScope(record.run)) continue;
      const isShown = matches(record.run, checked) && (access === null || await access.mayShow(record));
      if (isShown && waits.length === limit) return { waits, total, next: toCursor(place!) }; // one was shown
      place = after;
      if (isShown) waits.push(toOpenWait(record));
      if (access !== null && isLate()) return { waits, total, next: toCursor(place) };
    }
    if (found.waits.length < asked) {
      // All open waits were examined, from the first one on.
      return { waits, total: total ?? (isCounted && cursor === undefined ? waits.length : null), next: null };
    }
    if (isLate()) return { waits, total, next: toCursor(place!) }; // it is not the start
    if (access !== null) await nextTurn(host);
  }
}

/**
 * Lists the open waits of some runs, all of which are the caller's own: it costs what they have. A page continues after the
 * id of a wait, which says nothing about the waits of others.
 */
export async function listOwnWaits(
  query: OpenWaitsQuery,
  runIds: readonly string[],
  { store, host, mayShow }: Omit<OpenWaitsDeps, "access"> & Pick<WaitAccess, "mayShow">,
): Promise<OpenWaitsPage> {
  const { limit = DEFAULT_LIMIT, cursor } = query;
  checkInteger(limit, "limit", 1, MAX_LIMIT);
  const own: OpenWaitRecord[] = [];
  for (let after: OpenWaitPlace | null = null;;) {
    const { waits } = await store.getOpenWaits(after, SLICE, runIds);
    own.push(...waits);
    if (waits.length < SLICE) break;
    after = waits.at(-1)!.place; // it is not empty
  }
  const later = cursor === undefined ? own : afterCursor(own, toOwnPlace(cursor));
  const shown: OpenWaitRecord[] = [];
  let last: OpenWaitRecord | null = null;
  const pageOf = (next: OpenWaitRecord | null): OpenWaitsPage => ({
    waits: shown.map(toOpenWait),
    total: null,
    next: next === null ? null : `${next.place.deadlineAt ?? "-"}.${next.wait.id}`,
  });
  const startedAt = host.monotonic();
  for (const record of later) {
    if (last !== null && host.monotonic() - startedAt > MAX_MS) return pageOf(last);
    const isShown = await mayShow(record);
    if (isShown && shown.length === limit) return pageOf(last);
    if (isShown) shown.push(record);
    last = record;
  }
  return pageOf(null);
}

// The milliseconds of a UUIDv7 have so many characters.
const MS_LENGTH = 13;

/** The waits after a cursor. If its wait is not open any more, those of its millisecond come again, rather than never. */
function afterCursor(own: readonly OpenWaitRecord[], [deadlineAt, id]: OwnPlace): readonly OpenWaitRecord[] {
  const at = own.findIndex(({ wait }) => wait.id === id);
  if (at !== -1) return own.slice(at + 1);
  const since = id.slice(0, MS_LENGTH);
  return own.filter(({ wait, place }) => {
    const deadline = place.deadlineAt ?? Infinity;
    return deadline > deadlineAt || (deadline === deadlineAt && wait.id.slice(0, MS_LENGTH) >= since);
  });
}

function toOpenWait({ wait, run: { jobName, labels }, payloadSchema }: OpenWaitRecord): OpenWait {
  return { ...wait, jobName, labels, payloadSchema: payloadSchema === null ? null : JSON.parse(payloadSchema) };
}

function toCursor({ deadlineAt, seq }: OpenWaitPlace): string {
  return `${deadlineAt ?? "-"}.${seq}`;
}

function toPlace(cursor: unknown): OpenWaitPlace {
  const [deadlineAt, after] = toOwnPlace(cursor);
  // After the id of a wait, of whose deadline there may be others.
  return { deadlineAt: deadlineAt === Infinity ? null : deadlineAt, seq: /^\d{1,16}$/.test(after) ? Number(after) : 0 };
}

type OwnPlace = readonly [deadlineAt: number, after: string];

function toOwnPlace(cursor: unknown): OwnPlace {
  const found = typeof cursor === "string" ? CURSOR.exec(cursor) : null;
  if (found === null) throw new ValidationError("cursor must be the next of an earlier page");
  return [found[1] === "-" ? Infinity : Number(found[1]), found[2]!];
}
