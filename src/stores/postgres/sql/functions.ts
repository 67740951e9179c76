import { APPLY } from "./writes/apply.ts";
import { BASICS } from "./basics.ts";
import { BLOCKERS } from "./operate/blockers.ts";
import { BOUNDED_READS } from "./reads/bounded_reads.ts";
import { CHANGED_CODE } from "./changed_code.ts";
import { CHILDREN } from "./writes/children.ts";
import { CLAIM } from "./claim/claim.ts";
import { CLAIM_FACTS } from "./claim/claim_facts.ts";
import { DELETIONS } from "./writes/deletions.ts";
import { ENDINGS } from "./writes/endings.ts";
import { ENQUEUE } from "./writes/enqueue.ts";
import { GATES } from "./flow/gates.ts";
import { GROUPED_WRITES } from "./writes/grouped_writes.ts";
import { HISTORIES } from "./claim/histories.ts";
import { JOURNAL } from "./reads/journal.ts";
import { LEASES } from "./writes/leases.ts";
import { MESSAGES } from "./writes/messages.ts";
import { NUMBERS } from "./operate/numbers.ts";
import { OPERATOR_READS } from "./operate/operator_reads.ts";
import { PAUSES } from "./writes/pauses.ts";
import { QUEUES } from "./flow/queues.ts";
import { RECORDS } from "./writes/records.ts";
import { RUN_LISTS } from "./reads/run_lists.ts";
import { SCAN_STARTS } from "./claim/scan_starts.ts";
import { SCHEDULES } from "./schedules.ts";
import { STREAMS } from "./streams.ts";
import { TAKE_BESIDE } from "./claim/take_beside.ts";
import { TAKE_IN_TURN } from "./claim/take_in_turn.ts";

/**
 * SQL without indentation and without lines that are comments. The npm package has each template of SQL in this form, and
 * `migrate()` brings functions into it, so that they are the same text in both packages.
 *
 * No literal of the stores relies on how a line begins: those that span lines are SQL, too.
 */
export function compactSql(sql: string): string {
  return sql.replaceAll(/\n(?:\s*--.*\n)*\s*/g, "\n");
}

/** All functions of the current version. Their bodies are checked when they are called, so their order is free. */
export const FUNCTIONS: string = [
  "set local check_function_bodies = off;",
  APPLY,
  BASICS,
  BLOCKERS,
  BOUNDED_READS,
  CHANGED_CODE,
  CHILDREN,
  CLAIM,
  CLAIM_FACTS,
  DELETIONS,
  ENDINGS,
  ENQUEUE,
  GATES,
  GROUPED_WRITES,
  HISTORIES,
  JOURNAL,
  LEASES,
  NUMBERS,
  OPERATOR_READS,
  PAUSES,
  MESSAGES,
  QUEUES,
  RECORDS,
  RUN_LISTS,
  SCAN_STARTS,
  SCHEDULES,
  STREAMS,
  TAKE_BESIDE,
  TAKE_IN_TURN,
].join("\n");
