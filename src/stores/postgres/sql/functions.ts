import { APPLY } from "./apply.ts";
import { BASICS } from "./basics.ts";
import { CHILDREN } from "./children.ts";
import { CLAIMS } from "./claim/functions.ts";
import { ENDINGS } from "./endings.ts";
import { ENQUEUE } from "./enqueue.ts";
import { EVOLUTION } from "./evolution/functions.ts";
import { FLOW } from "./flow/functions.ts";
import { JOURNAL } from "./journal.ts";
import { LEASES } from "./leases.ts";
import { LOCKS } from "./locks.ts";
import { OPERATE } from "./operate/functions.ts";
import { OUTAGES } from "./outages.ts";
import { PAUSES } from "./pauses.ts";
import { READS } from "./reads/functions.ts";
import { RECORDS } from "./records.ts";
import { SCHEDULES } from "./schedules.ts";
import { SETS } from "./sets.ts";
import { WORKERS } from "./workers.ts";

/** All functions of the current version. Their bodies are checked when they are called, so their order is free. */
export const FUNCTIONS: string = [
  "set local check_function_bodies = off;",
  ...[
    BASICS,
    LOCKS,
    FLOW,
    RECORDS,
    ENDINGS,
    ENQUEUE,
    LEASES,
    WORKERS,
    OUTAGES,
    PAUSES,
    JOURNAL,
    CLAIMS,
    SETS,
    APPLY,
    READS,
    CHILDREN,
    SCHEDULES,
    EVOLUTION,
    OPERATE,
  ],
].join("\n");
