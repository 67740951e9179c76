import { BOUNDED_READS } from "./bounded_reads.ts";
import { HELD_SNAPSHOTS } from "./held_snapshots.ts";
import { JOURNAL_READS } from "./journal.ts";
import { RUN_LISTS } from "./run_lists.ts";

/** The functions that read, in an order in which they can be created. */
export const READS: string = [BOUNDED_READS, RUN_LISTS, JOURNAL_READS, HELD_SNAPSHOTS].join("\n");
