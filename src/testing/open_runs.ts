import type { Store } from "../store/store.ts";
import { getRuns, getWaits } from "../store/reads.ts";

const MAX_DESCRIBED = 5;

/** Which runs have not ended, and what they wait for; an empty string: all have ended. */
export async function describeOpenRuns(store: Store): Promise<string> {
  const status = ["pending", "leased", "running", "waiting"] as const;
  const { runs, total } = await getRuns(store, { status, limit: MAX_DESCRIBED });
  const texts = await Promise.all(runs.map(async ({ id, jobName, status }) => {
    const open = (await getWaits(store, id)).filter((wait) => wait.status === "pending");
    const hold = await store.getHold(id);
    const waits = open.map(({ name }) => `"${name}"`).join(", ");
    if (hold !== null) return `run ${id} of "${jobName}" is held: ${hold.message}`;
    return `run ${id} of "${jobName}" ${waits === "" ? `is ${status}` : `waits for a signal ${waits}`}`;
  }));
  return texts.join("; ") + (total > runs.length ? `; and ${total - runs.length} more` : "");
}
