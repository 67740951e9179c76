import { toClientRun } from "../../model/client_run.ts";
import { toClientWait } from "../../model/client_wait.ts";
import { ValidationError } from "../../model/error.ts";
import type { BulkOperation } from "../../model/run.ts";
import { getRun } from "../../store/reads.ts";
import { bulk, followRun, followRuns, readItems, run, scoped, send, signal, trigger, wait } from "../access/guards.ts";
import { logsJson, messagesJson, runsJson, stepsJson, streamJson, waitsJson } from "../json_lists.ts";
import { bulk as bulkBody, NO_FROM, SEND, SIGNAL, TRIGGER } from "../requests/bodies.ts";
import {
  all,
  FROM,
  LIST_FILTER,
  LIST_VIEW,
  required,
  RESUME,
  RESUME_LIST,
  RUN_FILTER,
  RUN_ID,
  SENT_TO,
} from "../requests/parameters.ts";
import { noSuchRun } from "../response.ts";
import { route } from "../route.ts";
import { ITEMS } from "../streams/item_query.ts";
import { withoutUndefined } from "../without_undefined.ts";

const WAIT_ID = all(RUN_ID, required("waitId"));
const SUCCESS = { success: true } as const;

const retrigger = <Path extends string>(path: Path, summary: string) =>
  route({
    method: "POST",
    path,
    summary,
    query: all(RUN_ID, FROM),
    body: NO_FROM,
    answers: { schema: "RetriggerResult" },
    errors: ["invalid_input", "not_found", "conflict", "body_timeout"],
    guard: run("retrigger"),
    does: async ({ engine, access, run, query: { from } }) => {
      const { id: runId, status } = await engine.retrigger(run.id, { from, ...await access.actorOptions() });
      return { ...SUCCESS, runId, status };
    },
  });

const changeMany = <Path extends string>(path: Path, operation: BulkOperation, summary: string) =>
  route({
    method: "POST",
    path,
    summary,
    body: bulkBody(operation),
    answers: { schema: "BulkResult" },
    guard: bulk(operation),
    does: async ({ internals, access, guard, body: { selection, options } }) => {
      const by = options.dryRun === true ? {} : await access.actorOptions();
      return await internals.performBulk(operation, selection, { ...options, ...by }, guard);
    },
  });

/** The routes of runs, of what belongs to them, and of what is done with them. */
export const RUN_ROUTES = {
  trigger: route({
    method: "POST",
    path: "/trigger",
    summary: "Asks for a run",
    body: TRIGGER,
    answers: { schema: "TriggerResult" },
    errors: ["invalid_input", "not_found", "conflict", "key_in_use"],
    guard: trigger(),
    does: async ({ internals, guard, body: { jobName, input, ...options } }) => {
      const { run: { id: runId, status }, disposition } = await internals.trigger(jobName, input, options, guard);
      return { runId, disposition, status };
    },
  }),
  subscribe: route({
    method: "GET",
    path: "/subscribe",
    summary: "Streams the events of a run",
    query: all(RUN_ID, RESUME),
    answers: "events",
    errors: ["not_found", "too_many_streams"],
    guard: followRun(),
    does: ({ stream }) => stream,
  }),
  stream: route({
    method: "GET",
    path: "/stream",
    summary: "Reads the items of a stream of a run: the read side of the Durable Streams protocol",
    query: ITEMS,
    answers: "items",
    errors: ["not_found", "stream_reset", "too_many_streams"],
    hasHead: true,
    guard: readItems(),
    does: ({ response }) => response,
  }),
  streams: route({
    method: "GET",
    path: "/streams",
    summary: "Shows the streams of a run",
    query: RUN_ID,
    answers: { listOf: "StreamInfo" },
    errors: ["not_found"],
    guard: run("read"),
    does: async ({ run, source: { store } }) => {
      const streams = await store.getStreams(run.id);
      // It may have been deleted while a hook was asked.
      if (streams.length === 0 && await getRun(store, run.id) === null) throw noSuchRun();
      return streams;
    },
  }),
  runs: route({
    method: "GET",
    path: "/runs",
    summary: "Lists runs, newest first",
    query: all(RUN_FILTER, LIST_VIEW),
    answers: { schema: "RunList" },
    errors: ["not_found"],
    guard: scoped(),
    does: async ({ scope, source, query: { isSummary, isCounted }, report }) => {
      const found = await source.store.findRuns(isCounted ? scope : { ...scope, countUpTo: 0 });
      return await streamJson(runsJson(source, found, { status: scope.status, isSummary, isCounted }), report);
    },
  }),
  run: route({
    method: "GET",
    path: "/run",
    summary: "Shows a run",
    query: RUN_ID,
    answers: { schema: "Run" },
    errors: ["not_found"],
    guard: run("read", true),
    does: ({ run }) => toClientRun(run),
  }),
  steps: route({
    method: "GET",
    path: "/steps",
    summary: "Shows the recorded steps of a run",
    query: RUN_ID,
    answers: { listOf: "Step" },
    errors: ["not_found"],
    guard: run("steps"),
    does: async ({ run, source, report }) => await streamJson(stepsJson(source, run.id), report),
  }),
  waits: route({
    method: "GET",
    path: "/waits",
    summary: "Shows the waits of a run",
    query: RUN_ID,
    answers: { listOf: "Wait" },
    errors: ["not_found"],
    guard: run("waits"),
    does: async ({ run, source, report }) => await streamJson(waitsJson(source, run.id), report),
  }),
  wait: route({
    method: "GET",
    path: "/wait",
    summary: "Shows a wait",
    query: WAIT_ID,
    answers: { schema: "Wait" },
    errors: ["not_found"],
    guard: wait(),
    does: ({ wait }) => toClientWait(wait),
  }),
  signal: route({
    method: "POST",
    path: "/signal",
    summary: "Ends a wait",
    query: WAIT_ID,
    body: SIGNAL,
    answers: { schema: "SignalReceipt" },
    errors: ["not_found", "conflict", "wait_expired"],
    guard: signal(),
    does: async ({ internals, access, wait: { id }, body }) => {
      const { wait, disposition } = await internals.signal(id, body, await access.actor());
      return { wait: toClientWait(wait), disposition };
    },
  }),
  messages: route({
    method: "GET",
    path: "/messages",
    summary: "Shows the messages of a run",
    query: RUN_ID,
    answers: { listOf: "Message" },
    errors: ["not_found"],
    guard: run("messages"),
    does: ({ source, run, report }) => streamJson(messagesJson(source, run.id), report),
  }),
  send: route({
    method: "POST",
    path: "/send",
    summary: "Sends a message to a run, or starts one",
    query: SENT_TO,
    body: SEND,
    answers: { schema: "SendResult" },
    errors: ["invalid_input", "not_found", "conflict", "run_ended"],
    guard: send(),
    does: ({ internals, guard, query: { runId }, body: { name, payload, id, jobName, key, start } }) => {
      const to = jobName === undefined || key === undefined ? runId : { job: jobName, key };
      if (to === undefined || to === "" || (runId !== undefined && key !== undefined)) {
        throw new ValidationError("A message needs either the parameter runId, or jobName and key in the body");
      }
      const started = start === undefined ? {} : { start: { ...start, input: start.input } };
      return internals.messages.send(to, name, payload, { ...withoutUndefined({ id }), ...started }, guard);
    },
  }),
  logs: route({
    method: "GET",
    path: "/logs",
    summary: "Shows the log lines of a run",
    query: RUN_ID,
    answers: { listOf: "LogEntry" },
    errors: ["not_found"],
    guard: run("read"),
    does: async ({ run, source, report }) => await streamJson(logsJson(source, run.id), report),
  }),
  runsSubscribe: route({
    method: "GET",
    path: "/runs/subscribe",
    summary: "Streams the events of all runs",
    query: all(LIST_FILTER, RESUME_LIST),
    answers: "events",
    errors: ["too_many_streams"],
    guard: followRuns(),
    does: ({ stream }) => stream,
  }),
  retrigger: retrigger("/retrigger", "Retriggers a run that has ended"),
  retry: retrigger("/retry", "The same as /retrigger"),
  cancel: route({
    method: "POST",
    path: "/cancel",
    summary: "Cancels a run that has not ended",
    query: RUN_ID,
    answers: { schema: "Success" },
    errors: ["not_found", "conflict"],
    guard: run("cancel"),
    does: async ({ internals, access, run }) => {
      await internals.cancel(run.id, await access.actor());
      return SUCCESS;
    },
  }),
  resume: route({
    method: "POST",
    path: "/resume",
    summary: "Lets a held run be tried again",
    query: RUN_ID,
    answers: { schema: "Success" },
    errors: ["not_found", "conflict"],
    guard: run("resume"),
    does: async ({ engine, access, run }) => {
      await engine.resume(run.id, await access.actorOptions());
      return SUCCESS;
    },
  }),
  delete: route({
    method: "DELETE",
    path: "/run",
    summary: "Deletes a run that has ended",
    query: RUN_ID,
    answers: { schema: "Success" },
    errors: ["not_found", "conflict"],
    guard: run("delete"),
    does: async ({ engine, access, run }) => {
      await engine.deleteRun(run.id, await access.actorOptions());
      return SUCCESS;
    },
  }),
  runsCancel: changeMany("/runs/cancel", "cancel", "Cancels many runs"),
  runsRetrigger: changeMany("/runs/retrigger", "retrigger", "Retriggers many runs"),
  runsResume: changeMany("/runs/resume", "resume", "Resumes many held runs"),
  runsDelete: changeMany("/runs/delete", "delete", "Deletes many runs"),
};
