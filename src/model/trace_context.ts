/** The trace that something belongs to, as the headers of W3C Trace Context state it. */
export interface TraceContext {
  /** The id of the trace, the id of the span, and the flags: `00-<32 digits>-<16 digits>-<2 digits>`. */
  traceparent: string;
  /** What other tracing systems add; `null`: nothing. It is not kept if it has more than 512 characters. */
  tracestate: string | null;
}

/** A trace context as it is stored: `traceparent`, then, after a space, `tracestate` if there is one. */
export type TraceText = string;

const MAX_STATE_LENGTH = 512;
// W3C Trace Context, section 3.2.2. All later versions begin so.
const TRACEPARENT = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}$/;
const PRINTABLE = /^[ -~]+$/;

/** A trace context as text to store. `null` for one that is not valid: a trace never affects a run. */
export function encodeTrace(trace: TraceContext | null): TraceText | null {
  if (trace === null || typeof trace.traceparent !== "string" || !TRACEPARENT.test(trace.traceparent)) return null;
  const { traceparent, tracestate } = trace;
  const isKept = typeof tracestate === "string" && tracestate.length <= MAX_STATE_LENGTH && PRINTABLE.test(tracestate);
  return isKept ? `${traceparent} ${tracestate}` : traceparent;
}

/** A stored trace context. */
export function decodeTrace(text: TraceText | null): TraceContext | null {
  if (text === null) return null;
  const end = text.indexOf(" ");
  return end === -1
    ? { traceparent: text, tracestate: null }
    : { traceparent: text.slice(0, end), tracestate: text.slice(end + 1) };
}
