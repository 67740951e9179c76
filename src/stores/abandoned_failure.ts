import type { Failure } from "../failure.ts";

/** The failure of a run that was abandoned too many times in a row. */
export function abandonedFailure(abandonments: number): Failure {
  const message = `Abandoned ${abandonments} times in a row without recording anything: ` +
    "its worker keeps dying or stalling";
  return { kind: "abandoned", name: "Error", message, stack: null, cause: null };
}
