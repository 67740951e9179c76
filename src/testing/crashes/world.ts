import type { Moment } from "../checkpoint.ts";
import type { TestProcess } from "../test_process.ts";
import type { TestSystem } from "../test_system.ts";

/** What is asked at each call of a world. */
export interface WorldCalls {
  /** Where the callers are. */
  system(): TestSystem;
  /** Begins a call. The returned function says whether the process dies right before or after it. */
  begin(method: string, stepName: string | null, process: TestProcess): (moment: Moment) => boolean;
}

/** The end of a process inside a call of its world. The job may catch it; nothing that it does then counts. */
class ProcessDiedError extends Error {
  override readonly name = "ProcessDiedError";

  constructor() {
    super("The process has died");
  }
}

/** The same object; each call of one of its methods by a job is a checkpoint. */
export function watchedWorld<T extends object>(world: T, calls: WorldCalls): T {
  return new Proxy(world, {
    get: (target, name) => {
      const value = Reflect.get(target, name, target);
      if (typeof value !== "function" || typeof name === "symbol") return value;
      return (...parameters: unknown[]) => call(name, () => Reflect.apply(value, target, parameters), calls);
    },
  });
}

function call(method: string, perform: () => unknown, calls: WorldCalls): unknown {
  const place = calls.system().place.getStore();
  if (place === undefined) return perform(); // the test itself looks
  const { process, stepName } = place;
  if (!process.isAlive) throw new ProcessDiedError();
  const dies = calls.begin(method, stepName, process);
  if (dies("before")) throw new ProcessDiedError();
  const result = perform();
  if (!isPromise(result)) return afterwards(result);
  return result.then(afterwards);

  function afterwards(value: unknown): unknown {
    if (!process.isAlive || dies("after")) throw new ProcessDiedError();
    return value;
  }
}

function isPromise(value: unknown): value is Promise<unknown> {
  return typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";
}
