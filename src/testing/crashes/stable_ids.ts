import type { Store } from "../../store.ts";

const MOST_RUNS = 1_000;

/**
 * Replaces ids of runs and waits by names such as `run 2 of "child"`. They follow the clock, so a crash changes the ids of
 * all that is made after it, and a result or an effect that contains one is not another one for that.
 *
 * @returns The same values; what is neither an array, a plain object nor a string is left as it is.
 */
export async function withStableIds<T>(store: Store, value: T): Promise<T> {
  const names = new Map<string, string>();
  const { runs } = await store.getRuns({ limit: MOST_RUNS });
  for (const [index, { id, jobName }] of runs.toReversed().entries()) {
    const run = `run ${index + 1} of "${jobName}"`;
    names.set(id, run);
    for (const wait of await store.getWaits(id)) names.set(wait.id, `wait "${wait.name}" of ${run}`);
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
