import type { Hub } from "../../events/hub.ts";
import { endRunId } from "../../model/end.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { parseValue } from "../../values/json.ts";
import type { Recorder } from "../../statistics/recorder.ts";
import type { Store } from "../../store/store.ts";

/** Publishes the triggers of end runs: the store adds them in the commits that this process makes of ends. */
export function publishEndTriggers(
  { hub, jobs, store, recorder }: {
    hub: Hub;
    jobs: JobCatalog;
    store: Pick<Store, "getRunState">;
    recorder: Pick<Recorder, "noteTrigger">;
  },
): void {
  if (![...jobs.newest.values()].some((job) => [job, ...job.previous].some(({ onEnd }) => onEnd !== null))) return;
  for (const type of ["run:complete", "run:fail", "run:cancel"] as const) {
    hub.on(type, async ({ runId, jobName }) => {
      if (jobs.find(jobName)?.job.isEnd !== false) return;
      const state = await store.getRunState(endRunId(runId)).catch(() => null);
      if (state === null) return;
      const { run } = state;
      recorder.noteTrigger(run.jobName, "created");
      const input = parseValue(run.payload);
      hub.publish(run, {
        type: "run:trigger",
        input,
        startAt: null,
        parentRunId: null,
        scheduleName: null,
        slotAt: null,
        by: null,
      });
    });
  }
}
