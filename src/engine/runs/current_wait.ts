import type { Wait } from "../../model/wait.ts";
import { getRun, getWaits } from "../../store/reads.ts";
import type { Store } from "../../store/store.ts";

/**
 * The wait that a signal to this one is for. A wait that was open when its run ended is prepared anew, under another id,
 * by a retry from the failure, which does not send the mail with the old id again. So what comes to the old id is for the
 * wait of that name in the newest retry, once that has it. A retry from the start asks, and sends, anew.
 */
export async function currentWait(store: Store, wait: Wait): Promise<Wait> {
  if (wait.status !== "closed" && wait.status !== "cancelled") return wait;
  let current = wait;
  let run = await getRun(store, wait.runId);
  while (run !== null && run.retriggeredAs !== null) {
    const history = await store.getHistory(run.retriggeredAs);
    if (history === null || history.copied === null) break;
    run = await getRun(store, run.retriggeredAs);
    if (run === null) break;
    const { id: runId } = run;
    current = (await getWaits(store, runId)).find(({ name }) => name === wait.name) ?? current;
  }
  return current;
}
