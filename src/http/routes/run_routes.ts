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
import { listOf, ref, TEXT } from "../openapi/json_schema.ts";
import { noSuchRun } from "../response.ts";
import { route } from "../route.ts";
import { ITEMS } from "../streams/item_stream.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";

const AFTER_MESSAGE = optional("after", TEXT, { description: "The id of a message: only those behind it" });
const WAIT_ID = all(RUN_ID, required("waitId"));
const SUCCESS = { success: true } as const;

const retrigger = <Name extends string>(name: Name, summary: string) =>
  route(name, summary, {
    query: all(RUN_ID, FROM),
    body: NO_FROM,
    answers: ref("RetriggerResult"),
    errors: ["invalid_input", "conflict", "body_timeout"],
    guard: run("retrigger"),
    does: async ({ engine, access, run, query: { from } }) => {
      const { id: runId, status } = await engine.retrigger(run.id, { from, ...await access.actorOptions() });
      return { ...SUCCESS, runId, status };
    },
  });

const changeMany = <Name extends string>(name: Name, operation: BulkOperation, summary: string) =>
  route(name, summary, {
    body: bulkBody(operation),
    answers: ref("BulkResult"),
    guard: bulk(operation),
    does: async ({ internals, access, guard, body: { selection, options } }) => {
      const by = options.dryRun === true ? {} : await access.actorOptions();
      return await internals.bulk.perform(operation, selection, { ...options, ...by }, guard);
    },
  });

const change = <Name extends string>(
  name: Name,
  operation: RunOperation,
  summary: string,
  perform: (asked: Admitted & { run: { id: string } }) => Promise<unknown>,
) =>
  route(name, summary, {
    query: RUN_ID,
    body: NO_BODY,
    answers: ref("Success"),
    errors: ["conflict"],
    guard: run(operation),
    does: async (asked) => {
      await perform(asked);
      return SUCCESS;
    },
  });

const list = <Name extends string>(
  name: Name,
  schema: string,
  operation: RunOperation,
  summary: string,
  pieces: typeof stepsJson,
) =>
  route(name, summary, {
    query: RUN_ID,
    answers: listOf(ref(schema)),
    guard: run(operation),
    does: async ({ run, source, report }) => await streamJson(pieces(source, run.id), report),
  });

/** The routes of runs, of what belongs to them, and of what is done with them. */
export const RUN_ROUTES = {
  trigger: route("POST /trigger", "Asks for a run", {
    body: TRIGGER,
    answers: ref("TriggerResult"),
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
  subscribe: route("GET /subscribe", "Streams the events of a run", {
    query: all(RUN_ID, RESUME),
    answers: "events",
    errors: ["too_many_streams"],
    guard: followRun(),
    does: ({ stream }) => stream,
  }),
  stream: route("GET /stream", "Reads the items of a stream of a run: the read side of the Durable Streams protocol", {
    query: ITEMS,
    answers: "items",
    errors: ["stream_reset", "too_many_streams"],
    hasHead: true,
    guard: readItems(),
    does: ({ response }) => response,
  }),
  streams: route("GET /streams", "Shows the streams of a run", {
    query: RUN_ID,
    answers: listOf(ref("StreamInfo")),
    guard: run("read"),
    does: async ({ run, source: { store } }) => {
      const streams = await store.getStreams(run.id);
      // It may have been deleted while a hook was asked.
      if (streams.length === 0 && await getRun(store, run.id) === null) throw noSuchRun();
      return streams;
    },
  }),
  runs: route("GET /runs", "Lists runs, newest first", {
    query: all(RUN_FILTER, LIST_VIEW),
    answers: ref("RunList"),
    errors: ["not_found"],
    guard: scoped(),
    does: async ({ scope, source, query: { fields, total: isCounted = true }, report }) => {
      const found = await source.store.findRuns(isCounted ? scope : { ...scope, countUpTo: 0 });
      const shown = { status: scope.status, isSummary: fields === "summary", isCounted };
      return await streamJson(runsJson(source, found, shown), report);
    },
  }),
  run: route("GET /run", "Shows a run", {
    query: RUN_ID,
    answers: ref("Run"),
    guard: run("read", true),
    does: ({ run }) => toClientRun(run),
  }),
  steps: list("GET /steps", "Step", "steps", "Shows the recorded steps of a run", stepsJson),
  waits: list("GET /waits", "Wait", "waits", "Shows the waits of a run", waitsJson),
  wait: route("GET /wait", "Shows a wait", {
    query: WAIT_ID,
    answers: ref("Wait"),
    guard: wait(),
    does: ({ wait }) => toClientWait(wait),
  }),
  signal: route("POST /signal", "Ends a wait", {
    query: WAIT_ID,
    body: SIGNAL,
    answers: ref("SignalReceipt"),
    errors: ["conflict", "wait_expired"],
    guard: signal(),
    does: async ({ internals, access, wait: { id }, body }) => {
      const { wait, disposition } = await internals.runs.signal(id, body, await access.actor(), true);
      return { wait: toClientWait(wait), disposition };
    },
  }),
  messages: route("GET /messages", "Shows the messages of a run", {
    query: all(RUN_ID, AFTER_MESSAGE, limit()),
    answers: listOf(ref("Message")),
    guard: run("messages"),
    does: ({ source, run, report, query }) => streamJson(messagesJson(source, run.id, query), report),
  }),
  send: route("POST /send", "Sends a message to a run, or starts one", {
    query: SENT_TO,
    body: SEND,
    answers: ref("SendResult"),
    errors: ["invalid_input", "conflict", "run_ended"],
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
  logs: list("GET /logs", "LogEntry", "read", "Shows the log lines of a run", logsJson),
  runsSubscribe: route("GET /runs/subscribe", "Streams the events of all runs", {
    query: all(LIST_FILTER, RESUME_LIST),
    answers: "events",
    errors: ["too_many_streams"],
    guard: followRuns(),
    does: ({ stream }) => stream,
  }),
  retrigger: retrigger("POST /retrigger", "Retriggers a run that has ended"),
  retry: retrigger("POST /retry", "The same as /retrigger"),
  cancel: change(
    "POST /cancel",
    "cancel",
    "Cancels a run that has not ended",
    async ({ internals, access, run }) => await internals.runs.cancel(run.id, await access.actor()),
  ),
  resume: change(
    "POST /resume",
    "resume",
    "Lets a held run be tried again",
    async ({ engine, access, run }) => await engine.resume(run.id, await access.actorOptions()),
  ),
  delete: change(
    "DELETE /run",
    "delete",
    "Deletes a run that has ended",
    async ({ engine, access, run }) => await engine.deleteRun(run.id, await access.actorOptions()),
  ),
  runsCancel: changeMany("POST /runs/cancel", "cancel", "Cancels many runs"),
  runsRetrigger: changeMany("POST /runs/retrigger", "retrigger", "Retriggers many runs"),
  runsResume: changeMany("POST /runs/resume", "resume", "Resumes many held runs"),
  runsDelete: changeMany("POST /runs/delete", "delete", "Deletes many runs"),
};
