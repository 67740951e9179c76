import assert from "node:assert/strict";
import type { Engine } from "../../src/engine/engine.ts";
import type { EngineEvent, EventOf } from "../../src/model/event.ts";
import type { Wait } from "../../src/model/wait.ts";

/** The events `run:waiting`. */
export function waitings(events: readonly EngineEvent[]): EventOf<"run:waiting">[] {
  return events.filter((event) => event.type === "run:waiting");
}

/** The wait of a run with a name. */
export async function waitNamed(engine: Engine, runId: string, name: string): Promise<Wait> {
  const wait = (await engine.getWaits(runId)).find((wait) => wait.name === name);
  assert.ok(wait, `there is no wait "${name}"`);
  return wait;
}

/** Signals the wait of a run with a name. */
export async function signal(engine: Engine, runId: string, name: string, payload: string | number | null = null) {
  const { id } = await waitNamed(engine, runId, name);
  return await engine.signal(id, { signalId: `signal of ${name}`, payload });
}

/** The output of a run, which must have completed. */
export async function outputOf(engine: Engine, runId: string): Promise<unknown> {
  const run = (await engine.getRun(runId))!;
  assert.equal(run.status, "completed", run.error ?? "");
  return run.output;
}
