import { POSITIONS_PER_PRIORITY } from "../../../../model/flow.ts";
import { END_LEAD } from "../../../rules.ts";

/** The position of a run that did not keep its key and is not held, as an expression: see `positionOf()`. */
export function ownPosition(run: string): string {
  return `${run}.seq - ${POSITIONS_PER_PRIORITY} * ${run}.priority::bigint
    - case when ${run}.end_of is null or ${run}.concurrency_key is null then 0 else ${END_LEAD} end`;
}
