import type { BulkGuard } from "../../engine/bulk/perform_bulk.ts";
import type { MessageGuard } from "../../engine/messages.ts";
import type { TriggerGuard } from "../../engine/triggers/new_run.ts";
import type { BulkOperation, ListFilter, Run, RunFilter } from "../../model/run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import type { Signal, Wait } from "../../model/wait.ts";
import type { BulkRequest } from "../requests/bodies.ts";
import type { BodyOf } from "../requests/body_schemas.ts";
import type { ItemsQuery } from "../streams/item_stream.ts";
import type { Resume } from "../requests/parameters.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import type { Access, Admitted } from "./access.ts";
import type { HookName, Operation, RunOperation } from "./auth_hooks.ts";

/**
 * Decides whether the sender of a request may have it, and gives the route what it works with: a route has no engine
 * but from its guard.
 */
export interface Guard<Q, B, Given> {
  /** The hook that decides. */
  readonly hook: HookName;
  /** The operation that the hook receives. */
  readonly operation?: RunOperation | Operation;
  /**
   * Calls the hook.
   *
   * @throws {Response} It refuses.
   * @throws {HoldfastError} The run does not exist, or the route is not served without the hook.
   */
  readonly admit: (access: Access, query: Q, body: B) => Promise<Given>;
}

/**
 * Asks who may perform an operation on the run of the query.
 *
 * @param withValues Whether the route needs the input and the output, which may be large. Default: only the hook gets them.
 */
export function run(
  operation: RunOperation,
  withValues = false,
): Guard<{ runId: string }, unknown, Admitted & { run: Readonly<Run> }> {
  return {
    hook: "onRunAccess",
    operation,
    admit: async (access, { runId }) => ({
      run: await access.findRun(operation, runId, withValues ? Infinity : undefined),
      ...access.admitted,
    }),
  };
}

/** Asks who may see, or signal, a wait of the run of the query. A wait of another run counts as not found. */
export function wait(): Guard<{ runId: string; waitId: string }, unknown, Admitted & { wait: Wait }> {
  return {
    hook: "onRunAccess",
    operation: "waits",
    admit: async (access, { runId, waitId }) => ({
      wait: await access.findWait(await access.findRun("waits", runId), waitId),
      ...access.admitted,
    }),
  };
}

/**
 * Asks who may end a wait: `onRunAccess`, and then `onSignal`, unless the same signal was accepted before. A signal to an
 * old address is for the wait of a retry: its run is asked for, too. The route gets the wait that is to be ended.
 */
export function signal(): Guard<{ runId: string; waitId: string }, Signal, Admitted & { wait: Wait }> {
  return {
    hook: "onRunAccess",
    operation: "signal",
    admit: async (access, { runId, waitId }, signal) => {
      const named = await access.findRun("signal", runId);
      const wait = await access.findCurrentWait(await access.findWait(named, waitId));
      const run = wait.runId === named.id ? named : await access.findRun("signal", wait.runId);
      await access.checkSignal(run, wait, signal);
      return { wait, ...access.admitted };
    },
  };
}

/**
 * Asks who may send a message: `onRunAccess`, and then `onSend`, unless the message was accepted before; for one that may
 * start a run first `onTrigger`. The engine asks, once it knows which run takes the message.
 */
export function send(): Guard<{ runId?: string }, unknown, Admitted & { guard: MessageGuard | null }> {
  return {
    hook: "onRunAccess",
    operation: "send",
    admit: (access) => {
      access.checkServed("Messages are");
      return Promise.resolve({ guard: access.messageGuard(), ...access.admitted });
    },
  };
}

/** Asks who may perform an operation that does not concern one run, unless the host has opened the route to everybody. */
export function operate(operation: Operation): Guard<{ jobName?: string; name?: string }, unknown, Admitted> {
  return {
    hook: "onOperate",
    operation,
    admit: async (access, { jobName, name: scheduleName }) => {
      const names = withoutUndefined({ jobName, scheduleName });
      if (!access.isAnonymous) await access.checkOperation({ operation, ...names });
      return access.admitted;
    },
  };
}

/** Asks who may see the stacks of a run: both hooks have to admit it. */
export function stacks(): Guard<{ runId: string }, unknown, Admitted & { run: Readonly<Run> }> {
  return {
    hook: "onOperate",
    operation: "debug",
    admit: async (access, { runId }) => {
      access.checkStacksServed();
      await access.checkOperation({ operation: "debug" });
      return { run: await access.findRun("read", runId), ...access.admitted };
    },
  };
}

/** Asks which runs may be listed. The route gets the query that matches only these: before a run that may be read. */
export function scoped(): Guard<{ filter: RunFilter; before?: string }, unknown, Admitted & { scope: RunQuery }> {
  return {
    hook: "scopeRuns",
    admit: async (access, { filter, before }) => {
      const scope = await access.scopeOf(filter) ?? filter;
      return { scope: { ...scope, ...await access.placeOf(before) }, ...access.admitted };
    },
  };
}

/**
 * Serves what is read of the runs of all callers only if `onRunAccess` can be asked for each run: the route asks it,
 * and `scopeRuns`.
 *
 * @param what For the message, if it is not served: `Waits are`.
 */
export function eachRun(what: string): Guard<unknown, unknown, Admitted> {
  return {
    hook: "scopeRuns",
    admit: (access) => {
      access.checkServed(what);
      return Promise.resolve(access.admitted);
    },
  };
}

/** Asks who may trigger a run: when the engine has made it of the request. */
export function trigger(): Guard<unknown, BodyOf<"TriggerRequest">, Admitted & { guard: TriggerGuard }> {
  return {
    hook: "onTrigger",
    admit: (access, _, request) => Promise.resolve({ guard: access.triggerGuard(request), ...access.admitted }),
  };
}

/** Asks who may perform an operation on many runs: `onOperate`, then `scopeRuns`, then `onRunAccess` for each run. */
export function bulk(operation: BulkOperation): Guard<unknown, BulkRequest, Admitted & { guard: BulkGuard }> {
  return {
    hook: "onOperate",
    operation: "bulk",
    admit: async (access, _, { selection }) => ({
      guard: await access.bulkGuard(operation, selection),
      ...access.admitted,
    }),
  };
}

/** Asks who may follow the run of the query, as soon as its stream is counted. */
export function followRun(): Guard<{ runId: string; resume: Resume }, unknown, { stream: Response }> {
  return {
    hook: "onRunAccess",
    operation: "subscribe",
    admit: async (access, { runId, resume }) => ({
      stream: await access.openStream(resume, async () => ({
        runId: (await access.findRun("subscribe", runId)).id,
        filter: null,
        stream: null,
      })),
    }),
  };
}

/** Asks which runs may be followed. */
export function followRuns(): Guard<{ filter: ListFilter; resume: Resume }, unknown, { stream: Response }> {
  return {
    hook: "scopeRunsSubscribe",
    admit: async (access, { filter, resume }) => ({
      stream: await access.openStream(resume, async () => ({
        runId: null,
        filter: await access.streamFilter(filter),
        stream: null,
      })),
    }),
  };
}

/** Asks who may read the run of the query. A request that waits for items is counted as a stream before it does. */
export function readItems(): Guard<ItemsQuery, unknown, { response: Response }> {
  return {
    hook: "onRunAccess",
    operation: "read",
    admit: async (access, query) => ({ response: await access.readItems(query) }),
  };
}
