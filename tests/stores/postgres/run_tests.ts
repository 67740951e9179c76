// deno run -A tests/stores/postgres/run_tests.ts [--brief | arguments of deno test]
//
// Starts a PostgreSQL server and runs the tests of the engine, of the execution, of the HTTP handler and of the command line over
// it, one schema for each test. With --brief only those run that use the store in ways of their own. Where there is no server it says so and succeeds, unless HOLDFAST_POSTGRES=required is set.

import { startServer } from "./server.ts";

const PLACES = ["cli", "engine", "events", "execution", "http", "model", "otel", "replay"];

/** What --brief runs, and what each of these files asks of the store that the others do not. */
const BRIEF: Record<string, string> = {
  "engine/bulk/perform_bulk_test.ts": "changes of many runs, found page by page while they change",
  "engine/engine_test.ts": "triggers, reads, cancels and deletions, as an application asks for them",
  "engine/messages_test.ts": "messages to runs, to keys and with a start",
  "engine/operate/children_test.ts": "lists of children by groups, counted in parts",
  "engine/operate/explain_test.ts": "why a run waits: keys, turns, limits, rates, pauses",
  "engine/operate/timeline_test.ts": "the records of a run in their order, page by page",
  "engine/runs/ends_test.ts": "runs that clean up, added with the end of another",
  "engine/runs/held_runs_test.ts": "runs that are held, and offered to other code",
  "engine/runs/purge_loop_test.ts": "deletions by age, beside runs that are executed",
  "engine/schedules/scheduler_test.ts": "slots that several engines fire",
  "engine/triggers/retrigger_test.ts": "retries that copy a history",
  "events/run_event_stream_test.ts": "events of a run from its facts in the journal",
  "execution/calls/children_test.ts": "children that are added with a pause, and end it",
  "execution/calls/pauses_test.ts": "waits and sleeps, deadlines that pass, runs that park",
  "execution/calls/receive_test.ts": "receives that take messages",
  "execution/late_answers_test.ts": "answers of the store that come late, or twice",
  "execution/leases/lease_keeper_test.ts": "renewals, lost leases, and reports that go with them",
  "execution/streams/streams_test.ts": "chunks of streams, and attempts that replace others",
  "execution/worker_test.ts": "claims by several workers, and timers that wake them",
  "http/access/tenant_keys_test.ts": "keys of several tenants",
  "http/streams/resume_test.ts": "positions in the journal, trims, and pages of it",
  "otel/spans_test.ts": "traces that are stored with what they began",
};

const server = startServer();
if (server === null) Deno.exit(0);
const isBrief = Deno.args.length === 1 && Deno.args[0] === "--brief";
const places = (isBrief ? Object.keys(BRIEF) : PLACES).map((place) => `tests/${place}`);
const args = Deno.args.length > 0 && !isBrief ? Deno.args : ["--parallel", ...places];
const tests = new Deno.Command(Deno.execPath(), {
  args: ["test", "-A", "--no-check", "--filter", "PostgresStore", ...args],
  env: { HOLDFAST_POSTGRES_URL: server.url },
}).spawn();
// The server is stopped when the tests have ended.
for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, () => tests.kill("SIGTERM"));
const { code } = await tests.status;
Deno.exit(code);
