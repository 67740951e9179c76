/**
 * OpenTelemetry traces and metrics of `@holdfast/jobs`.
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
 * @module
 */

export { otel, type OtelOptions } from "./otel.ts";
