import type { Engine } from "../../engine/engine.ts";
import { type EngineInternals, INTERNALS, internalsOf } from "../../engine/engine_internals.ts";
import { ConflictError, NotFoundError } from "../../error.ts";
import type { Retrigger } from "./retrigger_stored_runs.ts";

/**
 * The same engine, which retriggers runs without the code of their jobs.
 *
 * @param retry Retriggers runs.
 */
export function engineOfStoredRuns(engine: Engine, retry: Retrigger): Engine {
  const retrigger: Engine["retrigger"] = async (runId, { from = "start" } = {}) => {
    const { done } = await retry({ runIds: [runId] }, { from });
    const old = await engine.getRun(runId);
    if (old === null) throw new NotFoundError(`There is no run "${runId}"`);
    const made = old.retriggeredAs === null ? null : await engine.getRun(old.retriggeredAs);
    if (made === null) throw new ConflictError(`Cannot retrigger run "${runId}": it is ${old.status}`);
    return { ...made, disposition: done === 1 ? "created" : "idempotent" };
  };
  const internals = internalsOf(engine);
  const performBulk: EngineInternals["performBulk"] = (operation, selection, options, guard) =>
    operation === "retrigger" ? retry(selection, options) : internals.performBulk(operation, selection, options, guard);
  const replaced = new Map<PropertyKey, unknown>([
    ["retrigger", retrigger],
    [INTERNALS, Object.assign(Object.create(internals), { performBulk })],
  ]);
  return new Proxy(engine, {
    get: (target, name) => {
      const member = replaced.get(name) ?? Reflect.get(target, name);
      return typeof member === "function" ? member.bind(target) : member; // the engine has private fields
    },
  });
}
