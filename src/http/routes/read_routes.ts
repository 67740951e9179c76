import { explain, findRuns, listFailures, listOpenWaits, showFailure, showTimeline } from "../answers/read_answers.ts";
import { PARAMETERS as P } from "../openapi/route_description.ts";
import type { DescribedRoute } from "../route.ts";

/** The routes of what operators read of runs. */
export const READ_ROUTES = {
  explain: {
    method: "GET",
    path: "/explain",
    answer: explain,
    description: {
      summary: "Says why a run is not executed",
      parameters: [P.runId],
      answer: { schema: "Explanation" },
      errors: ["not_found"],
    },
  },
  timeline: {
    method: "GET",
    path: "/timeline",
    answer: showTimeline,
    description: {
      summary: "Shows what has happened in a run",
      parameters: [P.runId, P.timelineFrom, P.timelineLimit],
      answer: { schema: "Timeline" },
      errors: ["not_found"],
    },
  },
  failure: {
    method: "GET",
    path: "/failure",
    answer: showFailure,
    description: {
      summary: "Shows the stacks and causes of what a run failed of",
      parameters: [P.runId],
      answer: { schema: "RunFailures" },
      errors: ["not_found"],
    },
  },
  waitsOpen: {
    method: "GET",
    path: "/waits/open",
    answer: listOpenWaits,
    description: {
      summary: "Lists the waits of all runs that nobody has signalled yet",
      parameters: [...P.listFilter, P.limit, P.cursor],
      answer: { schema: "OpenWaits" },
    },
  },
  failures: {
    method: "GET",
    path: "/failures",
    answer: listFailures,
    description: {
      summary: "Groups the newest failed runs by their errors",
      parameters: [P.anyJob, P.since],
      answer: { schema: "FailureGroups" },
    },
  },
  find: {
    method: "GET",
    path: "/find",
    answer: findRuns,
    description: {
      summary: "Finds runs by an id, a key or a label",
      parameters: [P.search],
      answer: { listOf: "FoundRun" },
    },
  },
} satisfies Record<string, DescribedRoute>;
