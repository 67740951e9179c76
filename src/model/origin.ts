import { checkOptionNames } from "../values/option_names.ts";
import { checkName } from "../values/name.ts";

/** The trace that something belongs to, as the headers of W3C Trace Context state it. */
export interface TraceContext {
  /** The id of the trace, the id of the span, and the flags: `00-<32 digits>-<16 digits>-<2 digits>`. */
  traceparent: string;
  /** What other tracing systems add; `null`: nothing. It is not kept if it has more than 512 characters. */
  tracestate: string | null;
}

/** Who acts. */
export interface ActorOptions {
  /**
   * Who acts, as the application names them: 1 to 255 characters, without control characters. Give an id rather than a
   * name: it is deleted with the run only. Default: nobody says so.
   */
  by?: string;
}

/**
 * Where something comes from, as it is stored with it: the `traceparent`, after a space the `tracestate` if there is one,
 * and after a line break who has done it, if somebody said so. No part but the last can have a line break.
 */
export type OriginText = string;

const MAX_STATE_LENGTH = 512;
// W3C Trace Context, section 3.2.2. All later versions begin so.
const TRACEPARENT = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}$/;
const PRINTABLE = /^[ -~]+$/;

/** The origin as text to store; `null`: there is nothing to store. A trace that is not valid is left out: it never affects a run. */
export function encodeOrigin(trace: TraceContext | null, by: string | null): OriginText | null {
  const text = withActor(encodeTrace(trace), by);
  return text === "" ? null : text;
}

function encodeTrace(trace: TraceContext | null): string {
  if (trace === null || typeof trace.traceparent !== "string" || !TRACEPARENT.test(trace.traceparent)) return "";
  const { traceparent, tracestate } = trace;
  const isKept = typeof tracestate === "string" && tracestate.length <= MAX_STATE_LENGTH && PRINTABLE.test(tracestate);
  return isKept ? `${traceparent} ${tracestate}` : traceparent;
}

/** The trace of a stored origin. */
export function traceOf(origin: OriginText | null): TraceContext | null {
  const [text = ""] = origin?.split("\n", 1) ?? [];
  if (text === "") return null;
  const end = text.indexOf(" ");
  return end === -1
    ? { traceparent: text, tracestate: null }
    : { traceparent: text.slice(0, end), tracestate: text.slice(end + 1) };
}

/** A text, and after it who has acted, if somebody said so. */
export function withActor(text: string, by: string | null): string {
  return by === null ? text : `${text}\n${by}`;
}

/** Who has acted, of what {@linkcode withActor} made; `null`: nobody said so. */
export function actorOf(text: OriginText | null): string | null {
  const end = text?.indexOf("\n") ?? -1;
  return text === null || end === -1 ? null : text.slice(end + 1);
}

/** Checks the options of a call that has no others: {@linkcode readActor}. */
export function checkActor(options: ActorOptions, call: string): string | null {
  checkOptionNames(options, { by: true }, call);
  return readActor(options);
}

/**
 * Checks who acts.
 *
 * @returns `null`: nobody says so.
 * @throws {ValidationError} It is not 1 to 255 characters without control characters.
 */
export function readActor({ by = null }: { by?: string | null | undefined }): string | null {
  if (by !== null) checkName(by, "by");
  return by;
}
