import { ValidationError } from "../../error.ts";
import type { Host } from "../../host.ts";
import type { Fact } from "../../fact.ts";
import { type Cursor, parseCursor } from "../../journal.ts";
import { isTerminal } from "../../run.ts";
import type { Store } from "../../store.ts";
import type { RunState } from "../../store/run_state.ts";

/** How the client of an event stream resumes, and receives it. */
export interface Resume {
  /** The last id that it has received; `null`: it starts anew. */
  cursor: Cursor | null;
  /** Whether the stream sends it ids. */
  hasIds: boolean;
  /** How often it is sent a summary instead of events, in milliseconds; `null`: it is sent events. */
  digestMs: number | null;
}

/**
 * Reads how the client of an event stream resumes. The stream sends ids if the client reads event streams (every
 * `EventSource` says so in `Accept`), or has received one before: as the header `Last-Event-ID`, or as `lastEventId`
 * of the query.
 *
 * @throws {ValidationError} `digestMs` is not valid.
 */
export function readResume(request: Request, query: URLSearchParams): Resume {
  const id = request.headers.get("last-event-id") ?? query.get("lastEventId");
  const readsEvents = request.headers.get("accept")?.toLowerCase().includes("text/event-stream") ?? false;
  return { cursor: parseCursor(id), hasIds: readsEvents || id !== null, digestMs: readDigestMs(query) };
}

/** The shortest interval of summaries. */
export const MIN_DIGEST_MS = 100;
/** The longest one. */
export const MAX_DIGEST_MS = 60_000;

function readDigestMs(query: URLSearchParams): number | null {
  const texts = query.getAll("digestMs");
  const [text] = texts;
  if (text === undefined) return null;
  const value = /^\d+$/.test(text) ? Number(text) : NaN;
  if (texts.length === 1 && value >= MIN_DIGEST_MS && value <= MAX_DIGEST_MS) return value;
  throw new ValidationError(`The parameter digestMs must be an integer from ${MIN_DIGEST_MS} to ${MAX_DIGEST_MS}`);
}

/** The dependencies for reading the journal. */
export interface ResumeDeps {
  /** The store with the journal. */
  store: Store;
  /** Time. */
  host: Host;
}

/** Whether a client at a cursor has received the last event of a run. */
export async function hasWholeRun(runId: string, cursor: Cursor, { store, host }: ResumeDeps): Promise<boolean> {
  const state = await store.getRunState(runId);
  if (state === null || !isTerminal(state.run.status) || await store.findCursor(cursor) === null) return false;
  const isEnd = ([run, kind]: Fact) => run === state.seq && ENDS.has(kind);
  return !await someFactAfter(cursor, isEnd, { store, host, until: state.place.position });
}

const ENDS: ReadonlySet<Fact[1]> = new Set<Fact[1]>(["completed", "failed", "cancelled"]);

/** Whether a run has reported progress after a cursor. */
export function hasProgressAfter(cursor: Cursor, { seq, place }: RunState, deps: ResumeDeps): Promise<boolean> {
  const isProgress = ([run, kind]: Fact) => run === seq && kind === "progressed";
  return someFactAfter(cursor, isProgress, { ...deps, until: place.position });
}

const PAGE_LENGTH = 262_144;

async function someFactAfter(
  { position }: Cursor,
  predicate: (fact: Fact) => boolean,
  { store, host, until }: ResumeDeps & { until: number },
): Promise<boolean> {
  for (let after = position; after < until;) {
    const page = await store.readJournal(after, PAGE_LENGTH);
    const last = page?.rows.at(-1);
    // The stream itself detects missing rows.
    if (page === null || last === undefined) return true;
    if (page.rows.some(({ facts }) => facts.some(predicate))) return true;
    after = last.position;
    if (after < until) await new Promise<void>((resolve) => host.defer(resolve));
  }
  return false;
}
