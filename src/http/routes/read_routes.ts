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
import { listOf, ref, TEXT } from "../openapi/json_schema.ts";
import { route } from "../route.ts";

const PART = optional("from", TEXT, { description: "The next of an earlier part" });

/** The routes of what operators read of runs. */
export const READ_ROUTES = {
  explain: route("GET /explain", "Says why a run is not executed", {
    query: RUN_ID,
    answers: ref("Explanation"),
    guard: run("read"),
    does: explain,
  }),
  timeline: route("GET /timeline", "Shows what has happened in a run", {
    query: all(RUN_ID, PART, limit(200)),
    answers: ref("Timeline"),
    guard: run("steps"),
    does: ({ query: { runId: _, ...options }, ...admitted }) => showTimeline(admitted, options),
  }),
  children: route(
    "GET /children",
    "Counts the children of a run, and lists them: first those that failed or are held",
    {
      query: all(RUN_ID, CHILD_FILTER, limit(50), CURSOR),
      answers: ref("Children"),
      guard: run("read"),
      does: ({ query: { runId: _, ...query }, ...admitted }) => showChildren(admitted, query),
    },
  ),
  failure: route("GET /failure", "Shows the stacks and causes of what a run failed of", {
    query: RUN_ID,
    answers: ref("RunFailures"),
    guard: stacks(),
    does: showFailures,
  }),
  waitsOpen: route("GET /waits/open", "Lists the waits of all runs that nobody has signalled yet", {
    query: all(LIST_FILTER, limit(50), CURSOR),
    answers: ref("OpenWaits"),
    guard: eachRun("Waits are"),
    does: async ({ query: { filter, ...page }, ...admitted }) => {
      const { waits, ...counts } = await showOpenWaits(admitted, { ...filter, ...page });
      return { waits: waits.map(toClientWait), ...counts };
    },
  }),
  failures: route("GET /failures", "Groups the newest failed runs by their errors", {
    query: all(JOBS, SINCE),
    answers: ref("FailureGroups"),
    guard: eachRun("Failures are"),
    does: ({ query, ...admitted }) => showFailureGroups(admitted, query),
  }),
  held: route("GET /held", "Groups the newest held runs by their messages", {
    query: JOBS,
    answers: ref("HeldGroups"),
    guard: eachRun("Held runs are"),
    does: ({ query, ...admitted }) => showHeldGroups(admitted, query),
  }),
  find: route("GET /find", "Finds runs by an id, a key or a label", {
    query: SEARCH,
    answers: listOf(ref("FoundRun")),
    guard: eachRun("Searches are"),
    does: ({ query: { q }, ...admitted }) => searchRuns(admitted, q),
  }),
};
