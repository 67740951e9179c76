import { decode } from "../../values/json.ts";
import { propertyOf } from "../../values/unknown_values.ts";
import type { Store } from "../../store/store.ts";
import { getRuns, getWaits } from "../../store/reads.ts";

const MOST_RUNS = 1_000;
// How much of the results of children is read at once.
const PART_LENGTH = 262_144;

/**
 * Replaces ids of runs and waits by names such as `child 2 of "all" of run 1 of "order"`. They follow the clock, so a crash
 * changes the ids of all that is made after it, and a result or an effect that contains one is not another one for that.
 *
 * A run is named after what made it, since a crash can change which of two parallel calls makes its run first.
 *
 * @returns The same values; what is neither an array, a plain object nor a string is left as it is.
 */
export async function withStableIds<T>(store: Store, value: T): Promise<T> {
  const names = new Map<string, string>();
  const { runs } = await getRuns(store, { limit: MOST_RUNS });
  // The oldest first: a run is older than those that it makes.
  for (const [index, { id, jobName }] of runs.toReversed().entries()) {
    const run = names.get(id) ?? `run ${index + 1} of "${jobName}"`;
    names.set(id, run);
    for (const wait of await getWaits(store, id)) names.set(wait.id, `wait "${wait.name}" of ${run}`);
    if (runs.length > 1) await nameMadeRuns(store, id, names);
  }
  const anyId = new RegExp([...names.keys()].join("|"), "g");
  const rename = (value: unknown): unknown => {
    if (typeof value === "string") return value.replace(anyId, (id) => names.get(id)!);
    if (Array.isArray(value)) return value.map(rename);
    if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [rename(key), rename(item)]));
  };
  return rename(value) as T; // of the same shape
}

/** Names the runs that a run has made: its children, and those that its steps have triggered. */
async function nameMadeRuns(store: Store, makerId: string, names: Map<string, string>): Promise<void> {
  const { steps, pauses } = (await store.getHistory(makerId))!; // nothing deletes runs
  const maker = names.get(makerId)!;
  const add = (id: string, name: string) => void (names.has(id) || names.set(id, `${name} of ${maker}`));
  for (const { name, result } of steps) {
    const output = result.status === "completed" ? decode(result.output) : undefined;
    const id = propertyOf(output, "runId");
    if (typeof id === "string" && propertyOf(output, "disposition") === "created") add(id, `run of step "${name}"`);
  }
  for (const { id: pauseId, kind, name, childCount } of pauses) {
    if (kind !== "children") continue;
    for (let no = 0; no < childCount;) {
      const part = await store.readChildren(pauseId, no, PART_LENGTH);
      if (part === null) break; // one has not ended: nothing that is recorded can have its id
      for (const { run: { id } } of part.items) add(id, `child ${++no} of "${name}"`);
    }
  }
}
