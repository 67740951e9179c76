import fc from "fast-check";

// Read without naming Deno or Node: this runs on both.
// deno-lint-ignore no-process-global -- Node has it, and Deno as well
const env: Record<string, string | undefined> = globalThis.process?.env ?? {};

/** With what everything here is generated: `FUZZ_SEED`. One that is always the same, unless somebody wants another. */
export const SEED = Number(env.FUZZ_SEED ?? 20_400_101);
console.info(`FUZZ_SEED=${SEED}`);

/** What {@linkcode checkProperty} goes by. */
export interface PropertyOptions<T> {
  /** Values that are tried first. */
  examples?: readonly T[];
  /** How many values are tried, unless `FUZZ_RUNS` says otherwise. */
  runs: number;
  /** The name of the test, by which it can be run alone. */
  name: string;
}

/**
 * Tries a property with many values, and shrinks the first one for which it does not hold.
 *
 * @throws {Error} It does not hold: the message says for what, and how to see it again.
 */
export async function checkProperty<T>(
  values: fc.Arbitrary<T>,
  holds: (value: T) => Promise<void>,
  { examples = [], runs, name }: PropertyOptions<T>,
): Promise<void> {
  const details = await fc.check(fc.asyncProperty(values, holds), {
    seed: SEED,
    examples: examples.map((value): [T] => [value]),
    numRuns: Number(env.FUZZ_RUNS ?? runs),
    ...(env.FUZZ_PATH === undefined ? {} : { path: env.FUZZ_PATH }),
  });
  if (!details.failed) return;
  const { counterexample, counterexamplePath, errorInstance, numRuns, numShrinks } = details;
  const error = errorInstance as Error;
  throw new Error(
    [
      `${error.message}`,
      `Found in run ${numRuns}, and made smaller ${numShrinks} times, to:`,
      ...(counterexample ?? []).map((value) => fc.stringify(value)),
      "To see it again:",
      `FUZZ_SEED=${SEED} FUZZ_PATH=${counterexamplePath} deno test -A tests/long/fuzz_test.ts --filter '${name}'`,
    ].join("\n\n"),
    { cause: error.cause ?? error },
  );
}
