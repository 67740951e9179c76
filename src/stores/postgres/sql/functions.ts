import { APPLY } from "./apply.ts";
import { BASICS } from "./basics.ts";
import { CHILDREN } from "./children.ts";
import { CLAIM } from "./claim.ts";
import { ENDINGS } from "./endings.ts";
import { ENQUEUE } from "./enqueue.ts";
import { EVOLUTION } from "./evolution/functions.ts";
import { JOURNAL } from "./journal.ts";
import { LEASES } from "./leases.ts";
import { PAUSES } from "./pauses.ts";
import { QUEUES } from "./queues.ts";
import { RATES } from "./rates.ts";
import { READS } from "./reads/functions.ts";
import { RECORDS } from "./records.ts";
import { SCHEDULES } from "./schedules.ts";
import { SETS } from "./sets.ts";
import { TURNS } from "./turns.ts";
import { WORKERS } from "./workers.ts";

/** All functions of the current version. Their bodies are checked when they are called, so their order is free. */
export const FUNCTIONS: string = [
  "set local check_function_bodies = off;",
  ...[
    BASICS,
    RATES,
    TURNS,
    QUEUES,
    RECORDS,
    ENDINGS,
    ENQUEUE,
    LEASES,
    WORKERS,
    PAUSES,
    JOURNAL,
    CLAIM,
    SETS,
    APPLY,
    READS,
    CHILDREN,
    SCHEDULES,
    EVOLUTION,
  ],
].join("\n");
