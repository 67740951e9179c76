import { withoutOccurrence } from "../values/name.ts";
import {
  type Attributes,
  type Context,
  context,
  createTraceState,
  isSpanContextValid,
  type Link,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Tracer,
} from "@opentelemetry/api";
import type { Around, EndedPause, ExecutionInfo } from "../model/around.ts";
import type { Failure } from "../model/failure.ts";
import type { TraceContext } from "../model/origin.ts";

/** Makes spans of what an engine does. Their names, kinds and attributes are in `docs/guides/operate.md`. */
export function spansAround(tracer: Tracer, mode: "trigger" | "run"): Required<Around> {
  /** The contexts of the executions under way, for programs whose SDK has no context manager. */
  const executions = new Map<string, Context>();

  /** The active context; if it has no span, that of an execution. */
  const activeIn = (runId: string | null): Context => {
    const active = context.active();
    if (runId === null || trace.getSpan(active) !== undefined) return active;
    return executions.get(runId) ?? active;
  };

  const start = (name: string, kind: SpanKind, attributes: Attributes, parent: Context, links: Link[] = []): Span =>
    tracer.startSpan(name, { kind, attributes, links }, parent);

  /** A pause that is over has a span of its own, with the times that the store has kept. */
  const showPause = (pause: EndedPause, { jobName, runId }: ExecutionInfo, parent: Context): void => {
    const { kind, name, outcome, suspendedAt, resolvedAt } = pause;
    if (kind === "children") return; // these have spans of their own
    const attributes = { ...messaging(null, jobName, runId), "holdfast.wait.outcome": outcome };
    const options = { kind: SpanKind.INTERNAL, attributes, startTime: suspendedAt };
    tracer.startSpan(`${kind} ${withoutOccurrence(name)}`, options, parent).end(Math.max(suspendedAt, resolvedAt));
  };

  return {
    trigger: async (info, next) => {
      const { jobName, count, retriggerOf } = info;
      const parent = info.isScheduled ? ROOT_CONTEXT : activeIn(info.parentRunId);
      const attributes = messaging("create", jobName);
      if (count > 1) attributes["messaging.batch.message_count"] = count;
      const links = toLinks([retriggerOf?.trace ?? null]);
      const span = start(`create ${jobName}`, SpanKind.PRODUCER, attributes, parent, links);
      info.trace = toTraceContext(span);
      const outcome = await context.with(trace.setSpan(parent, span), next);
      if (outcome.kind === "triggered") {
        const [first] = outcome.runs;
        if (outcome.runs.length === 1) span.setAttribute("messaging.message.id", first!.id);
        const dispositions = new Set(outcome.runs.map(({ disposition }) => disposition));
        if (dispositions.size === 1) span.setAttribute("holdfast.disposition", first!.disposition);
        for (const link of toLinks(outcome.runs.map((run) => run.trace))) span.addLink(link);
      } else if (outcome.kind === "skipped") span.setAttribute("holdfast.disposition", "skipped");
      else noteError(span, outcome.error);
      span.end();
      return outcome;
    },
    execution: async (info, next) => {
      const { runId, jobName, execution, workerId, resumedFrom } = info;
      const trigger = toSpanContext(info.trace);
      const root = mode === "run" ? rootOfRun(runId, trigger) : null;
      const parent = contextOf(root ?? trigger);
      const attributes = {
        ...messaging("process", jobName, runId),
        "holdfast.run.execution": execution,
        "holdfast.worker.id": workerId,
      };
      const links = toLinks([root === null ? null : info.trace, ...resumedFrom.map((pause) => pause.trace)]);
      for (const pause of resumedFrom) showPause(pause, info, parent);
      const span = start(`process ${jobName}`, SpanKind.CONSUMER, attributes, parent, links);
      const active = trace.setSpan(parent, span);
      executions.set(runId, active);
      const outcome = await context.with(active, next);
      if (executions.get(runId) === active) executions.delete(runId);
      span.setAttribute("holdfast.outcome", outcome.kind);
      if (outcome.kind === "failed") noteFailure(span, outcome.failure);
      span.end();
      return outcome;
    },
    step: async ({ execution: { runId, jobName }, stepName, attempt }, next) => {
      const parent = activeIn(runId);
      const attributes = {
        ...messaging(null, jobName, runId),
        "holdfast.step.name": stepName,
        "holdfast.step.attempt": attempt,
      };
      const span = start(`step ${withoutOccurrence(stepName)}`, SpanKind.INTERNAL, attributes, parent);
      const outcome = await context.with(trace.setSpan(parent, span), next);
      if ("failure" in outcome) {
        const { name, message, stack } = outcome.failure;
        span.recordException({ name, message, ...(stack === null ? {} : { stack }) });
        noteFailure(span, outcome.failure);
      }
      span.end();
      return outcome;
    },
    signal: async (info, next) => {
      const parent = context.active();
      const attributes = { "messaging.system": "holdfast", "holdfast.wait.id": info.waitId };
      const span = start("signal", SpanKind.PRODUCER, attributes, parent);
      info.trace = toTraceContext(span);
      const outcome = await context.with(trace.setSpan(parent, span), next);
      if (outcome.kind === "refused") noteError(span, outcome.error);
      else {
        const { kind, jobName, runId, waitName } = outcome;
        span.updateName(`signal ${withoutOccurrence(waitName)}`);
        span.setAttributes({ ...messaging(null, jobName, runId), "holdfast.disposition": kind });
      }
      span.end();
      return outcome;
    },
    send: async (info, next) => {
      const parent = context.active();
      const attributes = { "messaging.system": "holdfast", "holdfast.message.id": info.messageId };
      const span = start(`send ${info.name}`, SpanKind.PRODUCER, attributes, parent);
      info.trace = toTraceContext(span);
      const outcome = await context.with(trace.setSpan(parent, span), next);
      if (outcome.kind === "refused") noteError(span, outcome.error);
      else {
        const { kind, jobName, runId, started } = outcome;
        const ofRun = messaging(null, jobName, runId);
        span.setAttributes({ ...ofRun, "holdfast.disposition": kind, "holdfast.message.started": started });
      }
      span.end();
      return outcome;
    },
  };
}

/** The attributes of the OpenTelemetry conventions for messaging. */
function messaging(operation: "create" | "process" | null, jobName: string, runId?: string): Attributes {
  return {
    "messaging.system": "holdfast",
    "messaging.destination.name": jobName,
    ...(runId === undefined ? {} : { "messaging.message.id": runId }),
    ...(operation === null ? {} : { "messaging.operation.type": operation }),
  };
}

function noteFailure(span: Span, { name, message }: Failure): void {
  span.setAttribute("error.type", name);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

function noteError(span: Span, error: unknown): void {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  span.setAttribute("error.type", name);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

/** The context of a span as it is stored; `null` if it has none, because no SDK is installed. */
function toTraceContext(span: Span): TraceContext | null {
  const context = span.spanContext();
  if (!isSpanContextValid(context)) return null;
  const flags = context.traceFlags.toString(16).padStart(2, "0");
  return {
    traceparent: `00-${context.traceId}-${context.spanId}-${flags}`,
    tracestate: context.traceState?.serialize() || null,
  };
}

/** A stored trace context as that of a span of another process; `null` if there is none. */
function toSpanContext(stored: TraceContext | null): SpanContext | null {
  if (stored === null) return null;
  const [, traceId, spanId, flags] = stored.traceparent.split("-");
  if (traceId === undefined || spanId === undefined || flags === undefined) return null;
  const context: SpanContext = { traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true };
  if (stored.tracestate !== null) context.traceState = createTraceState(stored.tracestate);
  return isSpanContextValid(context) ? context : null;
}

/** The links to stored trace contexts, as far as there are any. */
function toLinks(stored: readonly (TraceContext | null)[]): Link[] {
  return stored.map(toSpanContext).filter((context) => context !== null).map((context) => ({ context }));
}

/** A context whose active span is one of another process; without one, a context without a span. */
function contextOf(parent: SpanContext | null): Context {
  return parent === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, parent);
}

/**
 * The root of the trace of a run: its trace id is the id of the run. No span has its span id. `null` if the id of the
 * run is no UUID.
 *
 * @param from The trace of the trigger: it decides whether the trace of the run is sampled.
 */
function rootOfRun(runId: string, from: SpanContext | null): SpanContext | null {
  const traceId = runId.replaceAll("-", "");
  const traceFlags = from?.traceFlags ?? TraceFlags.SAMPLED;
  const context: SpanContext = { traceId, spanId: traceId.slice(16), traceFlags, isRemote: true };
  return isSpanContextValid(context) ? context : null;
}
