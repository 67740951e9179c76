import {
  cancel,
  deleteRun,
  listRuns,
  performBulk,
  resume,
  retrigger,
  showLogs,
  showRun,
  showSteps,
  showWait,
  showWaits,
  signal,
  subscribe,
  subscribeRuns,
  trigger,
} from "../answers/run_answers.ts";
import { PARAMETERS as P } from "../openapi/route_description.ts";
import type { DescribedRoute } from "../route.ts";

/** The routes of runs, of what belongs to them, and of what is done with them. */
export const RUN_ROUTES = {
  trigger: {
    method: "POST",
    path: "/trigger",
    answer: trigger,
    description: {
      summary: "Asks for a run",
      body: "TriggerRequest",
      answer: { schema: "TriggerResult" },
      errors: ["invalid_input", "not_found", "conflict", "key_in_use"],
    },
  },
  subscribe: {
    method: "GET",
    path: "/subscribe",
    answer: subscribe,
    description: {
      summary: "Streams the events of a run",
      parameters: [P.runId, P.lastEventId],
      answer: "events",
      errors: ["not_found", "too_many_streams"],
    },
  },
  runs: {
    method: "GET",
    path: "/runs",
    answer: listRuns,
    description: {
      summary: "Lists runs, newest first",
      parameters: P.runList,
      answer: { schema: "RunList" },
      errors: ["not_found"],
    },
  },
  run: {
    method: "GET",
    path: "/run",
    answer: showRun,
    description: { summary: "Shows a run", parameters: [P.runId], answer: { schema: "Run" }, errors: ["not_found"] },
  },
  steps: {
    method: "GET",
    path: "/steps",
    answer: showSteps,
    description: {
      summary: "Shows the recorded steps of a run",
      parameters: [P.runId],
      answer: { listOf: "Step" },
      errors: ["not_found"],
    },
  },
  waits: {
    method: "GET",
    path: "/waits",
    answer: showWaits,
    description: {
      summary: "Shows the waits of a run",
      parameters: [P.runId],
      answer: { listOf: "Wait" },
      errors: ["not_found"],
    },
  },
  wait: {
    method: "GET",
    path: "/wait",
    answer: showWait,
    description: {
      summary: "Shows a wait",
      parameters: [P.runId, P.waitId],
      answer: { schema: "Wait" },
      errors: ["not_found"],
    },
  },
  signal: {
    method: "POST",
    path: "/signal",
    answer: signal,
    description: {
      summary: "Ends a wait",
      parameters: [P.runId, P.waitId],
      body: "SignalRequest",
      answer: { schema: "SignalReceipt" },
      errors: ["not_found", "conflict", "wait_expired"],
    },
  },
  logs: {
    method: "GET",
    path: "/logs",
    answer: showLogs,
    description: {
      summary: "Shows the log lines of a run",
      parameters: [P.runId],
      answer: { listOf: "LogEntry" },
      errors: ["not_found"],
    },
  },
  runsSubscribe: {
    method: "GET",
    path: "/runs/subscribe",
    answer: subscribeRuns,
    description: {
      summary: "Streams the events of all runs",
      parameters: [...P.listFilter, P.lastEventId, P.digestMs],
      answer: "events",
      errors: ["too_many_streams"],
    },
  },
  retrigger: {
    method: "POST",
    path: "/retrigger",
    answer: retrigger,
    description: {
      summary: "Retriggers a run that has ended",
      parameters: [P.runId, P.from],
      answer: { schema: "RetriggerResult" },
      errors: ["invalid_input", "not_found", "conflict", "body_timeout"],
    },
  },
  retry: {
    method: "POST",
    path: "/retry",
    answer: retrigger,
    description: {
      summary: "The same as /retrigger",
      parameters: [P.runId, P.from],
      answer: { schema: "RetriggerResult" },
      errors: ["invalid_input", "not_found", "conflict", "body_timeout"],
    },
  },
  cancel: {
    method: "POST",
    path: "/cancel",
    answer: cancel,
    description: {
      summary: "Cancels a run that has not ended",
      parameters: [P.runId],
      answer: { schema: "Success" },
      errors: ["not_found", "conflict"],
    },
  },
  resume: {
    method: "POST",
    path: "/resume",
    answer: resume,
    description: {
      summary: "Lets a held run be tried again",
      parameters: [P.runId],
      answer: { schema: "Success" },
      errors: ["not_found", "conflict"],
    },
  },
  delete: {
    method: "DELETE",
    path: "/run",
    answer: deleteRun,
    description: {
      summary: "Deletes a run that has ended",
      parameters: [P.runId],
      answer: { schema: "Success" },
      errors: ["not_found", "conflict"],
    },
  },
  runsCancel: {
    method: "POST",
    path: "/runs/cancel",
    answer: (call) => performBulk("cancel", call),
    description: { summary: "Cancels many runs", body: "BulkRequest", answer: { schema: "BulkResult" } },
  },
  runsRetrigger: {
    method: "POST",
    path: "/runs/retrigger",
    answer: (call) => performBulk("retrigger", call),
    description: { summary: "Retriggers many runs", body: "BulkRetriggerRequest", answer: { schema: "BulkResult" } },
  },
  runsDelete: {
    method: "POST",
    path: "/runs/delete",
    answer: (call) => performBulk("delete", call),
    description: { summary: "Deletes many runs", body: "BulkRequest", answer: { schema: "BulkResult" } },
  },
} satisfies Record<string, DescribedRoute>;
