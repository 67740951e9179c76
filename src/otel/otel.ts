import { createNoopMeter, metrics, ProxyTracerProvider, trace } from "@opentelemetry/api";
import type { Plugin } from "../engine/plugin.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { countedAround } from "./metrics.ts";
import { spansAround } from "./spans.ts";

/** Options of {@linkcode otel}. */
export interface OtelOptions {
  /**
   * To which trace the executions of a run belong. `trigger`: to the trace of the trigger, so that one trace leads from a
   * request to its result. `run`: each run has a trace of its own, whose id is the run's id without dashes, with a link
   * to the trigger; that suits runs of days. Its root span does not exist. Default: `trigger`.
   */
  trace?: "trigger" | "run";
}

const OPTIONS: Record<keyof OtelOptions, true> = { trace: true };
const SCOPE = "@holdfast/jobs";

/**
 * A plugin that makes OpenTelemetry spans and metrics: `engine.use(otel())`.
 *
 * Traces go on in other processes, after waits, retries and recoveries, because the trace of a trigger is stored with
 * its run. It needs an SDK, such as Deno's own (`OTEL_DENO=true`), registered globally before `use()`; without one
 * it does nothing, and costs nothing. An SDK that is registered later is not seen.
 *
 * @example
 * ```ts
 * import { createEngine, MemoryStore } from "@holdfast/jobs";
 * import { otel } from "@holdfast/jobs/otel";
 *
 * await using engine = createEngine({ store: new MemoryStore(), jobs: {} });
 * engine.use(otel());
 * ```
 *
 * @throws {TypeError} An option is unknown, or `trace` is neither `trigger` nor `run`.
 */
export function otel(options: OtelOptions = {}): Plugin {
  checkOptionNames(options, OPTIONS, "otel()");
  const { trace: mode = "trigger" } = options;
  if (mode !== "trigger" && mode !== "run") throw new TypeError('The option trace must be "trigger" or "run"');
  return {
    name: "otel",
    install({ on, around }) {
      if (makesSpans()) around(spansAround(trace.getTracer(SCOPE), mode));
      const meter = metrics.getMeter(SCOPE);
      if (meter === createNoopMeter()) return;
      around(countedAround(meter, on)); // inside, so that the span is active when a measurement is made
    },
  };
}

/** Whether an SDK is registered that makes spans. Without one, the calls would take time for nothing. */
function makesSpans(): boolean {
  const provider = trace.getTracerProvider();
  return !(provider instanceof ProxyTracerProvider) || provider.getDelegateTracer(SCOPE) !== undefined;
}
