import { context, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, type ReadableSpan } from "@opentelemetry/sdk-trace-base";

// One for the process, as a program has it.
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());

/** Keeps the spans of a test, of all that uses the global tracer provider from now on. */
export function keepSpans() {
  const ended: ReadableSpan[] = [];
  const nothing = () => Promise.resolve();
  const processor = {
    onStart() {},
    onEnd: (span: ReadableSpan) => void ended.push(span),
    forceFlush: nothing,
    shutdown: nothing,
  };
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [processor] });
  trace.disable(); // that of the test before
  trace.setGlobalTracerProvider(tracerProvider);
  return {
    tracer: tracerProvider.getTracer("test"),
    /** All spans of a name, in the order in which they ended. */
    named: (name: string) => ended.filter((span) => span.name === name),
    /** The only span of a name. */
    one(name: string): ReadableSpan {
      const [span, ...others] = ended.filter((span) => span.name === name);
      if (span === undefined || others.length > 0) {
        throw new Error(`There are ${others.length + (span === undefined ? 0 : 1)} spans "${name}", not one`);
      }
      return span;
    },
  };
}

/** The id of a span. */
export function idOf(span: ReadableSpan): string {
  return span.spanContext().spanId;
}

/** The ids of the spans that a span links to. */
export function linksOf({ links }: ReadableSpan): string[] {
  return links.map(({ context }) => context.spanId);
}

/** An instant of a span, in milliseconds since 1970. */
export function msOf([seconds, nanos]: ReadableSpan["startTime"]): number {
  return seconds * 1_000 + nanos / 1_000_000;
}
