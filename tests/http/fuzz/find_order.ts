import { isDeepStrictEqual } from "node:util";
import type { Action } from "./action.ts";
import type { Model } from "./model.ts";
import type { Answer } from "./world.ts";

/** Something that was done, and what it came to. */
export interface Deed {
  action: Action;
  answer: Answer;
}

/**
 * Looks for an order in which things that were done at once could have been done one after another: what each of them
 * came to, and the state that they left, have to be those of the model.
 *
 * @param isState Whether a model is in the state that was found in the end.
 * @returns The model after that; `null` if there is no such order.
 */
export function findOrder(model: Model, deeds: readonly Deed[], isState: (model: Model) => boolean): Model | null {
  if (deeds.length === 0) return isState(model) ? model : null;
  for (const deed of deeds) {
    const next = model.clone();
    const { status, body } = deed.answer;
    const expected = next.perform(deed.action, body?.runId ?? "", body);
    if (!isDeepStrictEqual({ status, body }, expected)) continue;
    const found = findOrder(next, deeds.filter((other) => other !== deed), isState);
    if (found !== null) return found;
  }
  return null;
}
