import assert from "node:assert/strict";
import { createEngine } from "../../src/engine/create_engine.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { anything } from "../support/stores/for_each_store.ts";
import { callCli } from "./call_cli.ts";
import { aFile, aServer, cliJobs, fill } from "./places.ts";
import { getMessages, getRun, getRuns, getWaits } from "../../src/store/reads.ts";

Deno.test("holdfast cancel, retrigger and delete change runs by their ids", async () => {
  await using file = await aFile();
  const { failed, waiting, completed } = await fill(file.store);

  const cancelled = await callCli(["cancel", waiting, ...file.args]);
  const retried = await callCli(["retrigger", failed, ...file.args, "--json"]);
  const deleted = await callCli(["delete", completed, ...file.args, "--yes"]);

  assert.deepEqual([cancelled.code, cancelled.lines], [0, ["1 run cancelled"]]);
  assert.deepEqual(retried.json, [{ matched: 1, done: 1, skipped: [], next: null }]);
  assert.deepEqual([deleted.code, deleted.lines], [0, ["1 run deleted"]]);
  assert.equal((await getRun(file.store, waiting))?.status, "cancelled");
  assert.equal(await getRun(file.store, completed), null);
});

Deno.test("holdfast retrigger on a database reuses the stored input and the completed steps, and a worker executes it", async () => {
  await using file = await aFile();
  const { failed } = await fill(file.store);

  await callCli(["retrigger", failed, ...file.args]);

  const retriggeredAs = (await getRun(file.store, failed))!.retriggeredAs!;
  await using engine = createEngine({ store: file.store, jobs: cliJobs, logger: null });
  await engine.runUntilIdle();
  const retry = await engine.getRun(retriggeredAs);
  const steps = await engine.getSteps(retriggeredAs);
  assert.deepEqual([retry!.status, retry!.payload, retry!.labels], ["failed", { bad: true }, { org: "acme" }]);
  assert.deepEqual(steps.map(({ name, attempts }) => [name, attempts]), [["download", 1], ["write", 1]]);
  assert.equal(steps[0]!.startedAt, (await engine.getSteps(failed))[0]!.startedAt); // it was not executed again
});

Deno.test("holdfast asks before it changes several runs, and changes nothing without a yes", async () => {
  await using file = await aFile();
  await fill(file.store);
  const filter = ["--job", "import-csv", "--status", "pending"];

  const no = await callCli(["cancel", ...filter, ...file.args], { answer: false });
  const nobody = await callCli(["cancel", ...filter, ...file.args]);
  const dry = await callCli(["cancel", ...filter, ...file.args, "--dry-run"]);
  const left = (await getRuns(file.store, { status: "pending" })).total;
  const yes = await callCli(["cancel", ...filter, ...file.args], { answer: true });

  assert.deepEqual([no.code, no.questions, no.notes], [1, ["Cancel 2 runs?"], ["Nothing was changed"]]);
  assert.equal(nobody.code, 2);
  assert.deepEqual([dry.code, dry.lines, left], [0, ["2 runs would be cancelled"], 2]);
  assert.deepEqual([yes.code, yes.lines], [0, ["2 runs cancelled"]]);
});

Deno.test("holdfast says that there is nothing to change, and asks nothing", async () => {
  await using file = await aFile();
  await fill(file.store);

  const cancelled = await callCli(["cancel", "--job", "nobody", ...file.args], { answer: true });
  const retried = await callCli(["retrigger", "--job", "nobody", ...file.args, "--json"], { answer: true });
  const purged = await callCli(["purge", "--older-than", "30d", ...file.args]); // without a terminal

  assert.deepEqual([cancelled.code, cancelled.lines, cancelled.questions], [0, ["There is no run to cancel"], []]);
  assert.deepEqual([retried.code, retried.json], [0, [{ matched: 0, done: 0, skipped: [], next: null }]]);
  assert.deepEqual([purged.code, purged.lines], [0, ["There is no run to delete"]]);
});

Deno.test("holdfast delete and purge ask for a single run, too", async () => {
  await using file = await aFile();
  const { completed } = await fill(file.store);

  const deleted = await callCli(["delete", completed, ...file.args], { answer: false });
  const purged = await callCli(["purge", "--older-than", "0s", ...file.args], { answer: false });
  const tooYoung = await callCli(["purge", "--older-than", "1h", "--dry-run", ...file.args]);
  const byStatus = await callCli(["purge", "--older-than", "0s", "--status", "failed", "--yes", ...file.args]);

  assert.deepEqual(deleted.questions, ["Delete 1 run?"]);
  assert.deepEqual(purged.questions, ["Delete 2 runs?"]);
  assert.deepEqual(tooYoung.lines, ["0 runs would be deleted"]);
  assert.deepEqual(byStatus.lines, ["1 run deleted"]);
  assert.notEqual(await getRun(file.store, completed), null);
});

Deno.test("holdfast retrigger takes failed runs unless a filter says otherwise", async () => {
  await using file = await aFile();
  const { failed } = await fill(file.store);

  const { lines } = await callCli(["retrigger", "--ended-since", "1h", "--yes", ...file.args]);

  assert.deepEqual(lines, ["1 run retriggered"]);
  assert.notEqual((await getRun(file.store, failed))!.retriggeredAs, null);
});

Deno.test("holdfast changes no run without ids or a filter, and exits with 1 if a run refuses", async () => {
  await using file = await aFile();
  const { failed, waiting } = await fill(file.store);

  const none = await callCli(["cancel", ...file.args]);
  const both = await callCli(["cancel", failed, "--job", "import-csv", ...file.args]);
  const refused = await callCli(["cancel", failed, waiting, "--yes", ...file.args]);

  assert.deepEqual([none.code, both.code], [2, 2]);
  assert.deepEqual([refused.code, refused.lines], [1, ["1 run cancelled"]]);
  assert.deepEqual(refused.notes, [`${failed}: its status does not allow it`]);
});

Deno.test("holdfast signal ends a wait, and the same signal again changes nothing", async () => {
  await using file = await aFile();
  const { waiting } = await fill(file.store);
  const [wait] = await getWaits(file.store, waiting);

  const first = await callCli(["signal", wait!.id, '{"approved":true}', ...file.args, "--json"]);
  const again = await callCli(["signal", wait!.id, "-", ...file.args, "--json"], { input: '{"approved": true}' });
  const other = await callCli(["signal", wait!.id, "null", ...file.args]);
  const unknown = await callCli(["signal", waiting, "null", ...file.args]);
  const notJson = await callCli(["signal", wait!.id, "{yes}", ...file.args]);

  assert.deepEqual([first, again].map(({ json }) => json[0].disposition), ["accepted", "duplicate"]);
  assert.deepEqual(first.json[0].wait.payload, { approved: true });
  assert.deepEqual([other.code, unknown.code, notJson.code], [1, 1, 2]);
});

Deno.test("holdfast pause and resume change a job", async () => {
  await using file = await aFile();
  const { first } = await fill(file.store);

  const paused = await callCli(["pause", "import-csv", "--note", "deploy", ...file.args, "--json"]);
  const why = await callCli(["why", first, ...file.args, "--json"]);
  const listed = await callCli(["jobs", ...file.args]);
  const resumed = await callCli(["resume", "import-csv", ...file.args]);
  const unknown = await callCli(["pause", "nothing", ...file.args]);

  assert.equal(paused.json[0].paused.note, "deploy");
  assert.match(listed.lines.join("\n"), /^import-csv +‖ paused: deploy +2 /m);
  assert.ok(why.json[0].reasons.some(({ kind }: { kind: string }) => kind === "job_paused"));
  assert.deepEqual([resumed.code, resumed.lines, unknown.code], [0, ["import-csv is resumed: 2 runs are pending"], 1]);
});

Deno.test("holdfast trigger triggers by a service, and not on a database, which has no schema", async () => {
  await using file = await aFile();
  await using server = await aServer(file.store, { jobs: cliJobs });

  const triggered = await callCli([
    "trigger",
    "import-csv",
    '{"bad":false}',
    "--label",
    "org=b",
    ...server.args,
    "--json",
  ]);
  const unknown = await callCli(["trigger", "nothing", ...server.args]);
  const onDatabase = await callCli(["trigger", "import-csv", ...file.args]);

  const run = await getRun(file.store, triggered.json[0].runId);
  assert.deepEqual([run!.payload, run!.labels], [{ bad: false }, { org: "b" }]);
  assert.deepEqual([unknown.code, onDatabase.code], [1, 2]);
});

Deno.test("holdfast backup copies a file, and neither a service nor over a file", async () => {
  await using file = await aFile();
  const { failed } = await fill(file.store);
  await using server = await aServer(file.store);
  const copy = `${file.path}.copy`;

  const copied = await callCli(["backup", copy, ...file.args]);
  const again = await callCli(["backup", copy, ...file.args]);
  const nowhere = await callCli(["backup", `${copy}.none/copy.db`, ...file.args]);
  const service = await callCli(["backup", copy, ...server.args]);
  const shown = await callCli(["show", failed, "--store", copy, "--json"]);

  const codes = [copied, again, nowhere, service].map(({ code }) => code);
  assert.deepEqual([codes, shown.json[0].run.id], [[0, 1, 1, 2], failed]);
  assert.match(again.notes.join(), /the file exists/);
  assert.match(nowhere.notes.join(), /its directory does not exist/);
});

Deno.test("holdfast tail follows a run to its end, and exits with 1 unless it completes", async () => {
  await using file = await aFile();
  const { first, failed, completed } = await fill(file.store);
  await using engine = createEngine({
    store: file.store,
    jobs: cliJobs,
    logger: null,
    worker: { pollingInterval: 20 },
  });

  const following = callCli(["tail", first, ...file.args, "--json"]);
  await engine.start();
  const followed = await following;
  const done = await callCli(["tail", completed, ...file.args]);
  const broken = await callCli(["tail", failed, ...file.args]);

  assert.equal(followed.code, 0);
  assert.equal(followed.json.at(-1).type, "run:complete");
  assert.deepEqual([done.code, broken.code], [0, 1]);
  assert.match(broken.lines.at(-1)!, /run:fail {2}ConnectionRefused: 10\.0\.3\.7:5432$/);
});

Deno.test("holdfast tail refuses --logs without a run, whose events have no log lines", async () => {
  await using file = await aFile();

  const { code, notes } = await callCli(["tail", "--logs", ...file.args]);

  assert.equal(code, 2);
  assert.match(notes[0]!, /^--logs is for one run/);
});

Deno.test("holdfast tail follows all runs of a job over HTTP until it is ended", async () => {
  await using file = await aFile();
  await using server = await aServer(file.store, { jobs: cliJobs });
  await using engine = createEngine({
    store: file.store,
    jobs: cliJobs,
    logger: null,
    worker: { pollingInterval: 20 },
  });
  await engine.start();
  const end = new AbortController();
  const following = callCli(["tail", "--job", "import-csv", ...server.args, "--json"], {
    abortSignal: end.signal,
    onLine: (line) => {
      if (line.includes('"run:complete"')) end.abort();
    },
  });

  const timer = setInterval(() => void engine.trigger("import-csv", {}), 100);
  const { code, json } = await following;
  clearInterval(timer);

  assert.equal(code, 0);
  assert.ok(json.every(({ jobName }) => jobName === "import-csv"));
});

Deno.test("holdfast send sends a message by a service, and refuses a database, which cannot check it", async () => {
  await using file = await aFile();
  const chat = defineJob({
    name: "chat",
    input: anything,
    messages: { text: anything },
    run: (step) => step.receive("text"),
  });
  await using server = await aServer(file.store, { jobs: { chat } });
  const { lines: [triggered] } = await callCli(["trigger", "chat", ...server.args]);
  const runId = triggered!.split(" ")[0]!;
  const send = ["send", runId, "text", '{"a":1}', "--id", "m1"];

  const sent = await callCli([...send, ...server.args]);
  const again = await callCli([...send, ...server.args, "--json"]);
  const refused = await callCli([...send, ...file.args]);

  assert.deepEqual([sent.code, sent.lines], [0, ["Message m1 is accepted"]]);
  assert.deepEqual(again.json, [{ runId, messageId: "m1", disposition: "duplicate", started: false }]);
  assert.equal(refused.code, 2);
  assert.match(refused.notes.join("\n"), /A database cannot check a message, .*: send it by a service/);
  const [message] = await getMessages(file.store, runId);
  assert.deepEqual([message!.id, message!.payload], ["m1", { a: 1 }]);
});
