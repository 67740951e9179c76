import { APPLY } from "./writes/apply.ts";
import { BASICS } from "./basics.ts";
import { CHILDREN } from "./writes/children.ts";
import { CLAIMS } from "./claim/functions.ts";
import { DELETIONS } from "./writes/deletions.ts";
import { ENDINGS } from "./writes/endings.ts";
import { ENQUEUE } from "./writes/enqueue.ts";
import { EVOLUTION } from "./evolution/functions.ts";
import { FLOW } from "./flow/functions.ts";
import { JOURNAL } from "./journal.ts";
import { LEASES } from "./writes/leases.ts";
import { LOCKS } from "./locks.ts";
import { OPERATE } from "./operate/functions.ts";
import { OUTAGES } from "./outages.ts";
import { PAUSES } from "./writes/pauses.ts";
import { READS } from "./reads/functions.ts";
import { RECORDS } from "./writes/records.ts";
import { SCHEDULES } from "./schedules.ts";
import { GROUPED_WRITES } from "./writes/grouped_writes.ts";
import { WORKERS } from "./writes/workers.ts";

/** All functions of the current version. Their bodies are checked when they are called, so their order is free. */
export const FUNCTIONS: string = [
  "set local check_function_bodies = off;",
  ...[
    BASICS,
    LOCKS,
    FLOW,
    RECORDS,
    ENDINGS,
    DELETIONS,
    ENQUEUE,
    LEASES,
    WORKERS,
    OUTAGES,
    PAUSES,
    JOURNAL,
    CLAIMS,
    GROUPED_WRITES,
    APPLY,
    READS,
    CHILDREN,
    SCHEDULES,
    EVOLUTION,
    OPERATE,
  ],
].join("\n");
