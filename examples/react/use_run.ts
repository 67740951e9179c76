import type { Client, ClientJobs, JobName, RunId, RunOf } from "@holdfast/jobs/client";
import { useMemo, useSyncExternalStore } from "react";
import { isPartial, NOTHING_KNOWN, reduce, type RunChange, type RunState } from "./run_state.ts";

/** Follows a run while the component is mounted. */
export function useRun<J extends ClientJobs, Name extends JobName<J>>(
  client: Client<J>,
  runId: RunId<Name>,
): RunState<RunOf<J, Name>> {
  const { subscribe, getState } = useMemo(() => followRun(client, runId), [client, runId]);
  return useSyncExternalStore(subscribe, getState, getState);
}

/** The state of a run, as `useSyncExternalStore()` wants it: the run is followed while somebody has subscribed. */
export function followRun<J extends ClientJobs, Name extends JobName<J>>(client: Client<J>, runId: RunId<Name>) {
  let state: RunState<RunOf<J, Name>> = NOTHING_KNOWN;
  return {
    getState: () => state,
    subscribe(onChange: () => void): () => void {
      const ending = new AbortController(); // one for each mount
      const abortSignal = ending.signal;
      const apply = (change: RunChange<RunOf<J, Name>>) => {
        state = reduce(state, change);
        onChange();
      };
      const follow = async (): Promise<void> => {
        for await (const change of client.watch(runId, { abortSignal })) {
          apply(change);
          if (!isPartial(change)) continue;
          try {
            const [run, waits] = await Promise.all([
              client.run(runId, { abortSignal }),
              client.waits(runId, { abortSignal }),
            ]);
            apply({ type: "snapshot", run, waits });
          } catch { // such a read is not repeated: watch() is, and begins with a snapshot
            return follow();
          }
        }
      };
      follow().catch((error) => {
        if (!abortSignal.aborted) apply({ type: "error", error });
      });
      return () => ending.abort();
    },
  };
}
