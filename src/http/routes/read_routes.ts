import { toClientWait } from "../../model/wait.ts";
import { eachRun, run, stacks } from "../access/guards.ts";
import {
  explain,
  searchRuns,
  showChildren,
  showFailureGroups,
  showFailures,
  showHeldGroups,
  showOpenWaits,
  showTimeline,
} from "../access/run_reads.ts";
import {
  all,
  CHILD_FILTER,
  CURSOR,
  JOBS,
  limit,
  LIST_FILTER,
  optional,
  RUN_ID,
  SEARCH,
  SINCE,
} from "../requests/parameters.ts";
import { TEXT } from "../openapi/json_schema.ts";
import { route } from "../route.ts";

const PART = optional("from", TEXT, { description: "The next of an earlier part" });

/** The routes of what operators read of runs. */
export const READ_ROUTES = {
  explain: route({
    method: "GET",
    path: "/explain",
    summary: "Says why a run is not executed",
    query: RUN_ID,
    answers: { schema: "Explanation" },
    errors: ["not_found"],
    guard: run("read"),
    does: explain,
  }),
  timeline: route({
    method: "GET",
    path: "/timeline",
    summary: "Shows what has happened in a run",
    query: all(RUN_ID, PART, limit(200)),
    answers: { schema: "Timeline" },
    errors: ["not_found"],
    guard: run("steps"),
    does: ({ query: { runId: _, ...options }, ...admitted }) => showTimeline(admitted, options),
  }),
  children: route({
    method: "GET",
    path: "/children",
    summary: "Counts the children of a run, and lists them: first those that failed or are held",
    query: all(RUN_ID, CHILD_FILTER, all(limit(50), CURSOR)),
    answers: { schema: "Children" },
    errors: ["not_found"],
    guard: run("read"),
    does: ({ query: { runId: _, ...query }, ...admitted }) => showChildren(admitted, query),
  }),
  failure: route({
    method: "GET",
    path: "/failure",
    summary: "Shows the stacks and causes of what a run failed of",
    query: RUN_ID,
    answers: { schema: "RunFailures" },
    errors: ["not_found"],
    guard: stacks(),
    does: showFailures,
  }),
  waitsOpen: route({
    method: "GET",
    path: "/waits/open",
    summary: "Lists the waits of all runs that nobody has signalled yet",
    query: all(LIST_FILTER, limit(50), CURSOR),
    answers: { schema: "OpenWaits" },
    guard: eachRun("Waits are"),
    does: async ({ query: { filter, ...page }, ...admitted }) => {
      const { waits, ...counts } = await showOpenWaits(admitted, { ...filter, ...page });
      return { waits: waits.map(toClientWait), ...counts };
    },
  }),
  failures: route({
    method: "GET",
    path: "/failures",
    summary: "Groups the newest failed runs by their errors",
    query: all(JOBS, SINCE),
    answers: { schema: "FailureGroups" },
    guard: eachRun("Failures are"),
    does: ({ query, ...admitted }) => showFailureGroups(admitted, query),
  }),
  held: route({
    method: "GET",
    path: "/held",
    summary: "Groups the newest held runs by their messages",
    query: JOBS,
    answers: { schema: "HeldGroups" },
    guard: eachRun("Held runs are"),
    does: ({ query, ...admitted }) => showHeldGroups(admitted, query),
  }),
  find: route({
    method: "GET",
    path: "/find",
    summary: "Finds runs by an id, a key or a label",
    query: SEARCH,
    answers: { listOf: "FoundRun" },
    guard: eachRun("Searches are"),
    does: ({ query: { q }, ...admitted }) => searchRuns(admitted, q),
  }),
};
