import { ValidationError } from "../../error.ts";
import { tidyText } from "../../values/text.ts";
import { similarNameFinder } from "../similar_name.ts";
import type { ParameterDescription } from "./parameters.ts";

const LABEL = "label";
const MAX_SHOWN_LENGTH = 64;
// Two short names that differ in one letter may both be meant.
const SHORTEST_MISTYPED = 4;

/**
 * Refuses a parameter of the URL whose name is nearly one of those that a route takes: ignored, it would seem to have
 * been taken. All others are ignored.
 *
 * @throws {ValidationError} There is one. It names the other.
 */
export function checkParameterNames(query: URLSearchParams, parameters: readonly ParameterDescription[]): void {
  const known = parameters.map(({ name }) => name);
  if (known.length === 0) return;
  const findSimilar = similarNameFinder(known);
  for (const name of new Set(query.keys())) {
    const [head, ...rest] = name.split(".", 2);
    const isLabel = rest.length > 0;
    const given = isLabel ? head! : name; // a name has a part before its first dot
    if (known.includes(given) && isLabel === (given === LABEL)) continue;
    const meant = given === LABEL ? LABEL : findSimilar(given) ?? known.find((one) => isMistyped(given, one));
    if (meant === undefined || !known.includes(meant) || (isLabel && meant !== LABEL)) continue;
    const suggested = meant === LABEL ? `${LABEL}.${isLabel ? name.slice(head!.length + 1) : "<key>"}` : meant;
    throw new ValidationError(
      `There is no parameter "${tidyText(name, MAX_SHOWN_LENGTH)}": did you mean "${
        tidyText(suggested, MAX_SHOWN_LENGTH)
      }"?`,
    );
  }
}

/** Whether a name becomes another one by adding, leaving out, changing or swapping one letter. */
function isMistyped(given: string, name: string): boolean {
  if (name.length < SHORTEST_MISTYPED || given === name || Math.abs(given.length - name.length) > 1) return false;
  let from = 0;
  while (given[from] === name[from]) from += 1;
  const [one, other] = [given.slice(from), name.slice(from)];
  const isSwapped = one[0] === other[1] && one[1] === other[0] && one.slice(2) === other.slice(2);
  return isSwapped || one.slice(1) === other.slice(1) || one.slice(1) === other || one === other.slice(1);
}
