import type { Mutant } from "./mutant.ts";
import { ACTOR_MUTANTS, LINK_MUTANTS } from "./actors.ts";
import { BULK_MUTANTS } from "./bulk.ts";
import { CHANGE_MUTANTS } from "./changes.ts";
import { CHILD_MUTANTS } from "./children.ts";
import { CLAIM_MUTANTS } from "./claims.ts";
import { END_MUTANTS } from "./ends.ts";
import { EXPLAINED_MUTANTS } from "./explained.ts";
import { FLOW_MUTANTS } from "./flow.ts";
import { HTTP_MUTANTS } from "./http.ts";
import { JOURNAL_MUTANTS } from "./journal.ts";
import { LEASE_MUTANTS } from "./leases.ts";
import { MESSAGE_MUTANTS } from "./messages.ts";
import { PAUSE_MUTANTS } from "./pauses.ts";
import { RUN_MUTANTS } from "./runs.ts";
import { SCHEDULE_MUTANTS } from "./schedules.ts";
import { STEP_MUTANTS } from "./steps.ts";
import { STREAM_MUTANTS } from "./streams.ts";

/** One bug for each rule that matters most. */
export const MUTANTS: readonly Mutant[] = [
  ...LEASE_MUTANTS,
  ...CLAIM_MUTANTS,
  ...RUN_MUTANTS,
  ...STEP_MUTANTS,
  ...PAUSE_MUTANTS,
  ...STREAM_MUTANTS,
  ...HTTP_MUTANTS,
  ...JOURNAL_MUTANTS,
  ...FLOW_MUTANTS.map((mutant) => ({ parts: ["flow"] as const, ...mutant })),
  ...CHILD_MUTANTS.map((mutant) => ({ parts: ["children"] as const, ...mutant })),
  ...BULK_MUTANTS.map((mutant) => ({ parts: ["bulk"] as const, ...mutant })),
  ...MESSAGE_MUTANTS.map((mutant) => ({ parts: ["messages"] as const, ...mutant })),
  ...END_MUTANTS.map((mutant) => ({ parts: ["ends"] as const, ...mutant })),
  ...SCHEDULE_MUTANTS.map((mutant) => ({ parts: ["schedules"] as const, ...mutant })),
  ...ACTOR_MUTANTS,
  ...LINK_MUTANTS.map((mutant) => ({ parts: ["links"] as const, ...mutant })),
  ...EXPLAINED_MUTANTS,
  ...CHANGE_MUTANTS.map((mutant) => ({ parts: ["changes"] as const, ...mutant })),
];
