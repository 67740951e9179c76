import { createEngine as create } from "../../src/engine/create_engine.ts";
import type { Engine, EngineOptions, Jobs } from "../../src/engine/engine.ts";
import type { Labels } from "../../src/run.ts";

/** Makes an engine that prints nothing, unless the test is about that: what tests make fail would hide what matters. */
export function createEngine<const J extends Jobs, L = Labels>(options: EngineOptions<J, L>): Engine<J, L> {
  return create({ logger: null, ...options });
}
