import {
  type Attributes,
  type Context,
  context,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
  type Tracer,
} from "@opentelemetry/api";
import type {
  Around,
  EndedPause,
  ExecutionInfo,
  ExecutionOutcome,
  SendEnd,
  SendInfo,
  SignalInfo,
  SignalResult,
  StepInfo,
  StepOutcome,
  TriggerInfo,
  TriggerOutcome,
} from "../model/around.ts";
import type { Failure } from "../model/failure.ts";
import { contextOf, rootOfRun, toLinks, toSpanContext, toTraceContext } from "./span_context.ts";

/** To which trace the executions of a run belong. */
export type TraceMode = "trigger" | "run";

/** Makes spans of what an engine does. Their names, kinds and attributes are in `docs/guides/operate.md`. */
export class Spans {
  readonly #tracer: Tracer;
  readonly #mode: TraceMode;
  /** The contexts of the executions under way, for programs whose SDK has no context manager. */
  readonly #executions = new Map<string, Context>();

  constructor(tracer: Tracer, mode: TraceMode) {
    this.#tracer = tracer;
    this.#mode = mode;
  }

  /** What the plugin does around the work of the engine. */
  get around(): Required<Around> {
    return {
      trigger: (info, next) => this.#create(info, next),
      execution: (info, next) => this.#process(info, next),
      step: (info, next) => this.#step(info, next),
      signal: (info, next) => this.#signal(info, next),
      send: (info, next) => this.#send(info, next),
    };
  }

  async #create(info: TriggerInfo, next: () => Promise<TriggerOutcome>): Promise<TriggerOutcome> {
    const { jobName, count, retriggerOf } = info;
    const parent = info.isScheduled ? ROOT_CONTEXT : this.#active(info.parentRunId);
    const attributes = messaging("create", jobName);
    if (count > 1) attributes["messaging.batch.message_count"] = count;
    const links = toLinks([retriggerOf?.trace ?? null]);
    const span = this.#tracer.startSpan(`create ${jobName}`, { kind: SpanKind.PRODUCER, attributes, links }, parent);
    info.trace = toTraceContext(span);
    const outcome = await context.with(trace.setSpan(parent, span), next);
    switch (outcome.kind) {
      case "triggered": {
        const [first] = outcome.runs;
        if (outcome.runs.length === 1) span.setAttribute("messaging.message.id", first!.id);
        const dispositions = new Set(outcome.runs.map(({ disposition }) => disposition));
        if (dispositions.size === 1) span.setAttribute("holdfast.disposition", first!.disposition);
        for (const link of toLinks(outcome.runs.map((run) => run.trace))) span.addLink(link);
        break;
      }
      case "skipped":
        span.setAttribute("holdfast.disposition", "skipped");
        break;
      case "refused":
        noteError(span, outcome.error);
    }
    span.end();
    return outcome;
  }

  async #process(info: ExecutionInfo, next: () => Promise<ExecutionOutcome>): Promise<ExecutionOutcome> {
    const { runId, jobName, execution, workerId, resumedFrom } = info;
    const trigger = toSpanContext(info.trace);
    const root = this.#mode === "run" ? rootOfRun(runId, trigger) : null;
    const parent = contextOf(root ?? trigger);
    const attributes = {
      ...messaging("process", jobName, runId),
      "holdfast.run.execution": execution,
      "holdfast.worker.id": workerId,
    };
    const links = toLinks([root === null ? null : info.trace, ...resumedFrom.map((pause) => pause.trace)]);
    for (const pause of resumedFrom) this.#pause(pause, info, parent);
    const span = this.#tracer.startSpan(`process ${jobName}`, { kind: SpanKind.CONSUMER, attributes, links }, parent);
    const active = trace.setSpan(parent, span);
    this.#executions.set(runId, active);
    const outcome = await context.with(active, next);
    if (this.#executions.get(runId) === active) this.#executions.delete(runId);
    span.setAttribute("holdfast.outcome", outcome.kind);
    if (outcome.kind === "failed") noteFailure(span, outcome.failure);
    span.end();
    return outcome;
  }

  /** A pause that is over has a span of its own, with the times that the store has kept. */
  #pause({ kind, name, outcome, suspendedAt, resolvedAt }: EndedPause, info: ExecutionInfo, parent: Context): void {
    if (kind === "children") return; // these have spans of their own
    const attributes = { ...messaging(null, info.jobName, info.runId), "holdfast.wait.outcome": outcome };
    const span = this.#tracer.startSpan(
      `${kind} ${withoutOccurrence(name)}`,
      { kind: SpanKind.INTERNAL, attributes, startTime: suspendedAt },
      parent,
    );
    span.end(Math.max(suspendedAt, resolvedAt));
  }

  async #step({ execution, stepName, attempt }: StepInfo, next: () => Promise<StepOutcome>): Promise<StepOutcome> {
    const { runId, jobName } = execution;
    const parent = this.#active(runId);
    const attributes = {
      ...messaging(null, jobName, runId),
      "holdfast.step.name": stepName,
      "holdfast.step.attempt": attempt,
    };
    const name = `step ${withoutOccurrence(stepName)}`;
    const span = this.#tracer.startSpan(name, { kind: SpanKind.INTERNAL, attributes }, parent);
    const outcome = await context.with(trace.setSpan(parent, span), next);
    if ("failure" in outcome) {
      const { name, message, stack } = outcome.failure;
      span.recordException({ name, message, ...(stack === null ? {} : { stack }) });
      noteFailure(span, outcome.failure);
    }
    span.end();
    return outcome;
  }

  async #signal(info: SignalInfo, next: () => Promise<SignalResult>): Promise<SignalResult> {
    const parent = context.active();
    const attributes = { "messaging.system": "holdfast", "holdfast.wait.id": info.waitId };
    const span = this.#tracer.startSpan("signal", { kind: SpanKind.PRODUCER, attributes }, parent);
    info.trace = toTraceContext(span);
    const outcome = await context.with(trace.setSpan(parent, span), next);
    if (outcome.kind === "refused") noteError(span, outcome.error);
    else {
      span.updateName(`signal ${withoutOccurrence(outcome.waitName)}`);
      span.setAttributes({ ...messaging(null, outcome.jobName, outcome.runId), "holdfast.disposition": outcome.kind });
    }
    span.end();
    return outcome;
  }

  async #send(info: SendInfo, next: () => Promise<SendEnd>): Promise<SendEnd> {
    const parent = context.active();
    const attributes = { "messaging.system": "holdfast", "holdfast.message.id": info.messageId };
    const span = this.#tracer.startSpan(`send ${info.name}`, { kind: SpanKind.PRODUCER, attributes }, parent);
    info.trace = toTraceContext(span);
    const outcome = await context.with(trace.setSpan(parent, span), next);
    if (outcome.kind === "refused") noteError(span, outcome.error);
    else {
      const { kind, jobName, runId, started } = outcome;
      span.setAttributes({
        ...messaging(null, jobName, runId),
        "holdfast.disposition": kind,
        "holdfast.message.started": started,
      });
    }
    span.end();
    return outcome;
  }

  /** The active context; if it has no span, that of an execution. */
  #active(runId: string | null): Context {
    const active = context.active();
    if (runId === null || trace.getSpan(active) !== undefined) return active;
    return this.#executions.get(runId) ?? active;
  }
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

/** A name as the job gives it: `charge` for `charge#2`. */
function withoutOccurrence(name: string): string {
  return name.replace(/#\d+$/, "");
}
