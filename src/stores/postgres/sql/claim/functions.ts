import { BOUNDED_CLAIM } from "./bounded_claim.ts";
import { CLAIM } from "./claim.ts";
import { CLAIM_FACTS } from "./claim_facts.ts";
import { CLAIMED_RUNS } from "./claimed_runs.ts";
import { TAKE_BESIDE } from "./take_beside.ts";
import { TAKE_IN_TURN } from "./take_in_turn.ts";
import { TIMERS } from "./timers.ts";

/** The functions of a claim. */
export const CLAIMS: string = [CLAIM, CLAIM_FACTS, TIMERS, TAKE_BESIDE, TAKE_IN_TURN, CLAIMED_RUNS, BOUNDED_CLAIM].join(
  "\n",
);
