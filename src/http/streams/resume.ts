import type { Fact } from "../../model/fact.ts";
import type { RunEvent } from "../../model/event.ts";
import { type Cursor, parseCursor } from "../../model/journal.ts";
import { isTerminal } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { RunState } from "../../store/run_query.ts";
import { openingEvents } from "../../events/opening_events.ts";

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
 */
export function readResume(request: Request, query: URLSearchParams): Resume {
  const id = request.headers.get("last-event-id") ?? query.get("lastEventId");
  const readsEvents = request.headers.get("accept")?.toLowerCase().includes("text/event-stream") ?? false;
  return { cursor: parseCursor(id), hasIds: readsEvents || id !== null, digestMs: null };
}

const ENDS: readonly Fact[1][] = ["completed", "failed", "cancelled"];
const PROGRESS: readonly Fact[1][] = ["progressed"];

/** How the stream of one run begins after a cursor. */
interface Resumed {
  /** Where to read on: at the end of the journal if nothing has happened to the run; `null`: the client has its last event. */
  place: Cursor | null;
  /** The latest progress, if the client may lack it. */
  progress: RunEvent | null;
}

/** Finds out how to begin the stream of one run after a cursor, without reading the journal. */
export async function resumeRun(state: RunState, known: Cursor, store: Store): Promise<Resumed> {
  const has = async (kinds: readonly Fact[1][] | null) =>
    await store.findLastFact(state.seq, known.position, kinds) !== null;
  const isNew = await has(null);
  if (isTerminal(state.run.status) && !(isNew && await has(ENDS))) return { place: null, progress: null };
  // Progress that was delayed when the client left may be older than its cursor.
  const latest = openingEvents({ ...state, place: known }).find(({ type }) => type === "run:progress");
  const progress = latest !== undefined && !(isNew && await has(PROGRESS)) ? latest : null;
  return { place: isNew || known.position > state.place.position ? known : state.place, progress };
}
