import type { Workload } from "./workload.ts";
import { blocking } from "./workloads/blocking.ts";
import { bulk } from "./workloads/bulk.ts";
import { children } from "./workloads/children.ts";
import { drain } from "./workloads/drain.ts";
import { edges } from "./workloads/edges.ts";
import { fanOut } from "./workloads/fan_out.ts";
import { flow } from "./workloads/flow.ts";
import { growth } from "./workloads/growth.ts";
import { idle } from "./workloads/idle.ts";
import { largeAnswers } from "./workloads/large_answers.ts";
import { lists } from "./workloads/lists.ts";
import { longRun } from "./workloads/long_run.ts";
import { memory } from "./workloads/memory.ts";
import { messages } from "./workloads/messages.ts";
import { notice } from "./workloads/notice.ts";
import { postgres } from "./workloads/postgres.ts";
import { postgresFlat } from "./workloads/postgres_flat.ts";
import { postgresTransactions } from "./workloads/postgres_transactions.ts";
import { postgresTriggers } from "./workloads/postgres_triggers.ts";
import { processes } from "./workloads/processes.ts";
import { replay } from "./workloads/replay.ts";
import { testKit } from "./workloads/test_kit.ts";
import { requests } from "./workloads/requests.ts";
import { transactions } from "./workloads/transactions.ts";
import { streams } from "./workloads/streams.ts";
import { trigger } from "./workloads/trigger.ts";
import { watch } from "./workloads/watch.ts";

/** All workloads, in the order in which they are measured. */
export const workloads: readonly Workload[] = [
  trigger,
  requests,
  drain,
  processes,
  longRun,
  replay,
  idle,
  notice,
  watch,
  growth,
  flow,
  children,
  lists,
  largeAnswers,
  memory,
  fanOut,
  blocking,
  bulk,
  transactions,
  streams,
  messages,
  edges,
  testKit,
  postgres,
  postgresFlat,
  postgresTransactions,
  postgresTriggers,
];
