import {
  type Context,
  createTraceState,
  isSpanContextValid,
  type Link,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  trace,
  TraceFlags,
} from "@opentelemetry/api";
import type { TraceContext } from "../model/origin.ts";

/** The context of a span as it is stored; `null` if it has none, because no SDK is installed. */
export function toTraceContext(span: Span): TraceContext | null {
  const context = span.spanContext();
  if (!isSpanContextValid(context)) return null;
  const flags = context.traceFlags.toString(16).padStart(2, "0");
  return {
    traceparent: `00-${context.traceId}-${context.spanId}-${flags}`,
    tracestate: context.traceState?.serialize() || null,
  };
}

/** A stored trace context as that of a span of another process; `null` if there is none. */
export function toSpanContext(stored: TraceContext | null): SpanContext | null {
  if (stored === null) return null;
  const [, traceId, spanId, flags] = stored.traceparent.split("-");
  if (traceId === undefined || spanId === undefined || flags === undefined) return null;
  const context: SpanContext = { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true };
  if (stored.tracestate !== null) context.traceState = createTraceState(stored.tracestate);
  return isSpanContextValid(context) ? context : null;
}

/** The links to stored trace contexts, as far as there are any. */
export function toLinks(stored: readonly (TraceContext | null)[]): Link[] {
  return stored.map(toSpanContext).filter((context) => context !== null).map((context) => ({ context }));
}

/** A context whose active span is one of another process; without one, a context without a span. */
export function contextOf(parent: SpanContext | null): Context {
  return parent === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parent);
}

/**
 * The root of the trace of a run: its trace id is the id of the run. No span has its span id. `null` if the id of the
 * run is no UUID.
 *
 * @param from The trace of the trigger: it decides whether the trace of the run is sampled.
 */
export function rootOfRun(runId: string, from: SpanContext | null): SpanContext | null {
  const traceId = runId.replaceAll("-", "");
  const traceFlags = from?.traceFlags ?? TraceFlags.SAMPLED;
  const context: SpanContext = { traceId, spanId: traceId.slice(16), traceFlags, isRemote: true };
  return isSpanContextValid(context) ? context : null;
}
