import { createEngine as create } from "../../src/engine/create_engine.ts";
import type { Engine } from "../../src/engine/engine.ts";
import type { EngineOptions } from "../../src/engine/engine_options.ts";
import type { Jobs } from "../../src/engine/job_handle.ts";
import type { Labels } from "../../src/model/run.ts";

/** Makes an engine that prints nothing, unless the test is about that: what tests make fail would hide what matters. */
export function createEngine<const J extends Jobs, L = Labels>(options: EngineOptions<J, L>): Engine<J, L> {
  return create({ logger: null, ...options });
}
