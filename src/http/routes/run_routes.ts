import { toClientRun } from "../../model/client_run.ts";
import { toClientWait } from "../../model/wait.ts";
import { ValidationError } from "../../model/error.ts";
import type { BulkOperation } from "../../model/run.ts";
import { getRun } from "../../store/reads.ts";
import { bulk, followRun, followRuns, readItems, run, scoped, send, signal, trigger, wait } from "../access/guards.ts";
import { logsJson, messagesJson, runsJson, stepsJson, streamJson, waitsJson } from "../json_lists.ts";
import { bulk as bulkBody, NO_BODY, NO_FROM, SEND, SIGNAL, TRIGGER } from "../requests/bodies.ts";
import {
  all,
  FROM,
  limit,
  LIST_FILTER,
  LIST_VIEW,
  optional,
  required,
  RESUME,
  RESUME_LIST,
  RUN_FILTER,
  RUN_ID,
  SENT_TO,
} from "../requests/parameters.ts";
import type { Admitted } from "../access/access.ts";
import type { RunOperation } from "../access/auth_hooks.ts";
import { TEXT } from "../openapi/json_schema.ts";
import { noSuchRun } from "../response.ts";
import { route } from "../route.ts";
import { ITEMS } from "../streams/item_query.ts";
import { withoutUndefined } from "../without_undefined.ts";

const AFTER_MESSAGE = optional("after", TEXT, { description: "The id of a message: only those behind it" });
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
      return await internals.bulk.perform(operation, selection, { ...options, ...by }, guard);
    },
  });

const change = <Method extends string, Path extends string>(
  method: Method,
  path: Path,
  operation: RunOperation,
  summary: string,
  perform: (asked: Admitted & { run: { id: string } }) => Promise<unknown>,
) =>
  route({
    method,
    path,
    summary,
    query: RUN_ID,
    body: NO_BODY,
    answers: { schema: "Success" },
    errors: ["not_found", "conflict"],
    guard: run(operation),
    does: async (asked) => {
      await perform(asked);
      return SUCCESS;
    },
  });

const list = <Path extends string>(
  path: Path,
  schema: string,
  operation: RunOperation,
  summary: string,
  pieces: typeof stepsJson,
) =>
  route({
    method: "GET",
    path,
    summary,
    query: RUN_ID,
    answers: { listOf: schema },
    errors: ["not_found"],
    guard: run(operation),
    does: async ({ run, source, report }) => await streamJson(pieces(source, run.id), report),
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
      const { run: { id: runId, status }, disposition } = await internals.triggers.trigger(
        jobName,
        input,
        options,
        guard,
      );
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
  steps: list("/steps", "Step", "steps", "Shows the recorded steps of a run", stepsJson),
  waits: list("/waits", "Wait", "waits", "Shows the waits of a run", waitsJson),
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
      const { wait, disposition } = await internals.runs.signal(id, body, await access.actor(), true);
      return { wait: toClientWait(wait), disposition };
    },
  }),
  messages: route({
    method: "GET",
    path: "/messages",
    summary: "Shows the messages of a run",
    query: all(RUN_ID, AFTER_MESSAGE, limit()),
    answers: { listOf: "Message" },
    errors: ["not_found"],
    guard: run("messages"),
    does: ({ source, run, report, query }) => streamJson(messagesJson(source, run.id, query), report),
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
  logs: list("/logs", "LogEntry", "read", "Shows the log lines of a run", logsJson),
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
  cancel: change(
    "POST",
    "/cancel",
    "cancel",
    "Cancels a run that has not ended",
    async ({ internals, access, run }) => await internals.runs.cancel(run.id, await access.actor()),
  ),
  resume: change(
    "POST",
    "/resume",
    "resume",
    "Lets a held run be tried again",
    async ({ engine, access, run }) => await engine.resume(run.id, await access.actorOptions()),
  ),
  delete: change(
    "DELETE",
    "/run",
    "delete",
    "Deletes a run that has ended",
    async ({ engine, access, run }) => await engine.deleteRun(run.id, await access.actorOptions()),
  ),
  runsCancel: changeMany("/runs/cancel", "cancel", "Cancels many runs"),
  runsRetrigger: changeMany("/runs/retrigger", "retrigger", "Retriggers many runs"),
  runsResume: changeMany("/runs/resume", "resume", "Resumes many held runs"),
  runsDelete: changeMany("/runs/delete", "delete", "Deletes many runs"),
};
