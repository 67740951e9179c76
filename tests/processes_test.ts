import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import {
  createEngine,
  defineJob,
  type Engine,
  type Host,
  type RunEvent,
  SqliteStore,
  StoreError,
  systemHost,
} from "../mod.ts";
import { anything } from "./processes/anything.ts";
import { Child } from "./processes/child.ts";
import { inTime, until } from "./processes/deadline.ts";
import { Ledger } from "./processes/ledger.ts";
import { needs } from "./support/platform.ts";
import { aRun } from "./support/fixtures.ts";
import { getRuns } from "../src/store/reads.ts";

Deno.test("a run survives 15 kills", async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  const engine = anEngine(store, "count");
  const begin = async () => (await engine.trigger("count", { steps: 20, stepMs: 30 })).id;
  const runIds = [await begin()];
  const kills: Kill[] = [];

  while (kills.length < 15) {
    const runId = runIds.at(-1)!;
    await using worker = new Child("counting_worker.ts", place.database, place.ledgerPath);
    const steps = 1 + Math.floor(Math.random() * 2);
    // A kill between the last step and the end of the run leaves no step to begin with.
    const hasEnded = async () => (await engine.getRun(runId))!.status === "completed";
    await until(
      async () => countStarts(worker, place.ledger) >= steps || await hasEnded(),
      "the worker was to begin with a step, or to complete the run",
    );
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 50));
    await worker.end("SIGKILL");

    const run = await engine.getRun(runId);
    if (run!.status === "completed") runIds.push(await begin()); // this kill came too late to count
    else kills.push(await lookAt(runId, engine, place.ledger));
  }
  await using last = new Child("counting_worker.ts", place.database, place.ledgerPath);
  const runs = await Promise.all(
    runIds.map((id) => inTime(engine.waitForRun(id), "the last worker was to end the run")),
  );
  await last.end("SIGKILL");

  for (const run of runs) {
    const steps = await engine.getSteps(run.id);
    assert.deepEqual(steps.map(({ name }) => name), Array.from({ length: 20 }, (_, number) => `step-${number}`));
    assert.ok(steps.every(({ status }) => status === "completed"));
    // The values are random: these are the recorded ones, whichever process had made them.
    assert.deepEqual(run.output, steps.map(({ output }) => output));
  }
  for (const { runId, recorded, acknowledged, ledgerLength } of kills) {
    const startedLater = place.ledger.read().slice(ledgerLength)
      .filter(([word, id]) => word === "start" && id === runId)
      .map(([, , stepName]) => stepName!);
    assert.deepEqual(acknowledged.filter((name) => !recorded.has(name)), []);
    assert.deepEqual(startedLater.filter((name) => recorded.has(name)), []);
  }
  assert.ok(kills.some(({ recorded }) => recorded.size > 0 && recorded.size < 20));
  assert.equal(integrity(place.database), "ok");
});

Deno.test("two processes share one file", async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  const engine = anEngine(store, "task", "special", "only-a", "only-b");
  await using _a = new Child("keyed_worker.ts", place.database, place.ledgerPath, "task", "special", "only-a");
  await using _b = new Child("keyed_worker.ts", place.database, place.ledgerPath, "task", "only-b");
  // The order is promised among the jobs that live workers know: each of them has to have said which it knows.
  for (const name of ["only-a", "only-b"]) {
    const { id } = await engine.trigger(name, { key: "none" });
    await inTime(engine.waitForRun(id), `the worker that knows "${name}" was to be ready`);
  }
  const keys = Array.from({ length: 20 }, (_, number) => `key-${number}`);
  const triggered = new Map(keys.map((key) => [key, [] as string[]]));
  const trigger = async (jobName: string, key: string) => {
    const { id } = await engine.trigger(jobName, { key }, { concurrencyKey: key });
    triggered.get(key)!.push(id);
  };

  for (let round = 0; round < 10; round++) {
    for (const [number, key] of keys.entries()) {
      if ((number + round) % 5 === 0) await trigger("special", key);
      await trigger("task", key);
    }
  }
  const total = 2 + [...triggered.values()].flat().length;
  const counted = async () => (await engine.getRuns({ status: "completed", limit: 0 })).total;
  await until(async () => await counted() === total, "all runs were to complete");

  const lines = place.ledger.read();
  for (const [key, runIds] of triggered) {
    const ofKey = lines.filter(([, , ledgerKey]) => ledgerKey === key).map(([word, runId]) => `${word} ${runId}`);
    assert.deepEqual(ofKey, runIds.flatMap((id) => [`begin ${id}`, `end ${id}`]), `the runs of ${key}`);
  }
  assert.equal((await engine.getRuns({ limit: 0 })).total, total);
  assert.equal(new Set(lines.map(([, , , pid]) => pid)).size, 2);
  assert.equal(integrity(place.database), "ok");
});

Deno.test("fifty triggers with one idempotency key from two processes make one run", async () => {
  await using place = await aPlace();
  await using a = new Child("triggering.ts", place.database, "trigger", "the-key", "25");
  await using b = new Child("triggering.ts", place.database, "trigger", "the-key", "25");
  await Promise.all([a.hear("ready"), b.hear("ready")]);

  await Promise.all([a.tell("go"), b.tell("go")]);
  const heard = await Promise.all([a.hear("triggered"), b.hear("triggered")]);

  const answers = heard.flatMap((message) => message.answers as { id: string; disposition: string }[]);
  await using store = await SqliteStore.open(place.database);
  const { runs } = await getRuns(store, {});
  assert.equal(answers.length, 50);
  assert.equal(runs.length, 1);
  assert.deepEqual(new Set(answers.map(({ id }) => id)), new Set([runs[0]!.id]));
  assert.equal(answers.filter(({ disposition }) => disposition === "created").length, 1);
  assert.equal(answers.filter(({ disposition }) => disposition === "idempotent").length, 49);
});

Deno.test("twenty retriggers of one run from two processes make one run", async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  const engine = anEngine(store, "greet");
  const old = await engine.trigger("greet", {});
  await engine.cancel(old.id);
  await using a = new Child("triggering.ts", place.database, "retrigger", old.id, "10");
  await using b = new Child("triggering.ts", place.database, "retrigger", old.id, "10");
  await Promise.all([a.hear("ready"), b.hear("ready")]);

  await Promise.all([a.tell("go"), b.tell("go")]);
  const heard = await Promise.all([a.hear("triggered"), b.hear("triggered")]);

  const answers = heard.flatMap((message) => message.answers as { id: string; disposition: string }[]);
  const { runs } = await getRuns(store, {});
  assert.deepEqual(runs.map(({ id }) => id), [answers[0]!.id, old.id]);
  assert.deepEqual(new Set(answers.map(({ id }) => id)), new Set([runs[0]!.id]));
  assert.equal(answers.filter(({ disposition }) => disposition === "created").length, 1);
  assert.equal(answers.filter(({ disposition }) => disposition === "idempotent").length, 19);
});

Deno.test("several processes open and migrate a new file at the same moment", async () => {
  await using place = await aPlace();
  await using children = new AsyncDisposableStack();
  const openers = Array.from({ length: 6 }, () => children.use(new Child("opening.ts")));
  await Promise.all(openers.map((opener) => opener.hear("ready")));

  for (let round = 0; round < 5; round++) {
    const database = `${place.folder}/new-${round}.db`;
    await Promise.all(openers.map((opener) => opener.tell(database)));
    const heard = await Promise.all(openers.map((opener) => opener.hear("triggered")));

    await using store = await SqliteStore.open(database);
    const { runs } = await getRuns(store, {});
    assert.deepEqual(heard.map(({ error }) => error), Array(6).fill(null));
    assert.deepEqual(runs.map(({ id }) => id).sort(), heard.map(({ runId }) => runId).sort());
    assert.equal(integrity(database), "ok");
  }
});

Deno.test("a large file can be copied while another process commits all the time", needs("signals"), async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  await store.migrate();
  const megabyte = JSON.stringify("x".repeat(2 ** 20));
  for (let i = 0; i < 40; i++) await store.enqueue([aRun({ payload: megabyte, input: megabyte })]);
  await using other = new Child("committing.ts", place.database);
  await other.hear("ready");
  const before = (await getRuns(store, { limit: 0 })).total;
  const began = performance.now();

  await store.backup(`${place.folder}/copy.db`);

  // One that begins anew at each commit takes minutes, in which nothing else happens here.
  assert.ok(performance.now() - began < 20_000, "the copy waited for a moment without commits");

  const copied = Number(countRuns(`${place.folder}/copy.db`));
  assert.ok(copied >= before, `${copied} runs are in the copy, ${before} were there before`);
  assert.equal(integrity(`${place.folder}/copy.db`), "ok");
  assert.equal((await other.end("SIGTERM")).signal, "SIGTERM");
});

Deno.test("a worker whose lease ended while it was blocked starts no step that another has recorded", async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  const engine = anEngine(store, "block");
  const { id } = await engine.trigger("block", {});
  await using blocked = new Child("blocking_worker.ts", place.database, place.ledgerPath);
  await blocked.hear("blocked");

  await using other = new Child("blocking_worker.ts", place.database, place.ledgerPath);
  const run = await inTime(engine.waitForRun(id), "the other worker was to take the run over");
  await blocked.hear("unblocked");

  assert.equal(run.output, other.pid);
  assert.deepEqual(place.ledger.read(), [
    ["start", id, "first", String(blocked.pid)],
    ["ack", id, "first"],
    ["start", id, "second", String(other.pid)],
    ["ack", id, "second"],
  ]);
});

Deno.test("a worker is told of a cancel in another process within a heartbeat", async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  const engine = anEngine(store, "hold");
  const deaf = await engine.trigger("hold", { holds: true, heedsAbort: false }, { concurrencyKey: "the-key" });
  const next = await engine.trigger("hold", { holds: false, heedsAbort: false }, { concurrencyKey: "the-key" });
  await using worker = new Child("holding_worker.ts", place.database, place.ledgerPath);
  await worker.hear("executing");

  await engine.cancel(deaf.id);
  const aborted = await worker.hear("aborted");
  // While the body of the cancelled run goes on, the worker takes other runs, but not the next one of the key.
  const others = new Set<string>();
  for (const since = performance.now(); performance.now() - since < 1_000;) {
    const { id } = await engine.trigger("hold", { holds: false, heedsAbort: false });
    await inTime(engine.waitForRun(id), "the worker was to take another run");
    others.add(id);
  }
  const nextMeanwhile = await engine.getRun(next.id);
  await worker.tell("go");
  await inTime(engine.waitForRun(next.id), "the worker was to take the next run of the key");

  assert.equal(aborted.runId, deaf.id);
  assert.equal(nextMeanwhile!.status, "pending");
  assert.equal((await engine.getRun(deaf.id))!.status, "cancelled");
  assert.deepEqual(await engine.getSteps(deaf.id), []);
  const ofKey = place.ledger.read().filter(([, runId]) => !others.has(runId!));
  assert.deepEqual(ofKey, [
    ["begin", deaf.id],
    ["end", deaf.id],
    ["begin", next.id],
    ["end", next.id],
    ["after", next.id],
  ]);
});

Deno.test("a run in another process can be awaited and followed", async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  const engine = anEngine(store, "hold");
  const { id } = await engine.trigger("hold", { holds: true, heedsAbort: false });
  const awaited = engine.waitForRun(id);
  const events = engine.subscribe(id)[Symbol.asyncIterator]();
  await using worker = new Child("holding_worker.ts", place.database, place.ledgerPath);
  const hear = async (last: RunEvent["type"]) => {
    const heard: RunEvent[] = [];
    while (heard.at(-1)?.type !== last) {
      const { done, value } = await inTime(events.next(), `"${last}" was to be heard`);
      assert.ok(!done, `the stream ended before "${last}"`);
      heard.push(value);
    }
    return heard;
  };

  const begun = await hear("run:start");
  await worker.tell("go");
  const ended = await hear("run:complete");
  const run = await inTime(awaited, "the run was to complete");

  assert.deepEqual(begun.map(({ type }) => type), ["run:leased", "run:start"]);
  assert.deepEqual(
    ended.map((event) => [event.type, event.type === "step:complete" ? event.stepName : null]),
    [
      ["step:start", null],
      ["step:complete", "hold"],
      ["step:start", null],
      ["step:complete", "after"],
      ["run:complete", null],
    ],
  );
  assert.deepEqual(run.output, { pid: worker.pid, execution: 1 });
  assert.deepEqual(ended.at(-1), { ...ended.at(-1), output: run.output, runId: id, jobName: "hold" });
  assert.equal((await events.next()).done, true);
});

Deno.test("a restart holds no run, whatever the defaults of its input are and its schema refuses by then", async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  const engine = anEngine(store);
  const start = (region: string, ...words: string[]) =>
    new Child({ file: "defaulting_worker.ts", env: { REGION: region } }, place.database, ...words);
  const parked: [jobName: unknown, runId: string][] = [];
  await using first = start("first", "trigger");
  while (parked.length < 3) {
    const { jobName, runId } = await first.hear("waiting");
    parked.push([jobName, runId as string]);
  }
  await first.end("SIGKILL");

  await using second = start("second");
  for (const [, runId] of parked) {
    const [wait] = await engine.getWaits(runId);
    await engine.signal(wait!.id, { signalId: "answer", payload: null });
  }
  const ended = [await second.hear("ended"), await second.hear("ended"), await second.hear("ended")];

  for (const [jobName, runId] of parked) {
    const [note] = await engine.getSteps(runId);
    const { output } = ended.find((message) => message.jobName === jobName)!;
    assert.equal((note!.output as { region: string }).region, "first");
    assert.deepEqual(output, { input: note!.output, pid: second.pid }, JSON.stringify(ended));
  }
});

for (const replacement of ["nothing", "another database"]) {
  Deno.test(`a replaced file is noticed: ${replacement} is in its place`, needs("moved files"), async () => {
    await using place = await aPlace();
    const { host, advance } = movableHost();
    await using store = await SqliteStore.open(place.database, { host });
    await store.migrate();
    await store.enqueue([aRun()]);
    // With its log: SQLite takes a log that is left behind for that of the file that comes after.
    for (const part of ["", "-wal", "-shm"]) {
      await Deno.rename(`${place.database}${part}`, `${place.folder}/moved.db${part}`);
    }
    if (replacement === "another database") {
      await using other = await SqliteStore.open(`${place.folder}/other.db`);
      await other.migrate();
      await other.close();
      await Deno.rename(`${place.folder}/other.db`, place.database);
    }
    advance(1_001);

    const calls = await Promise.allSettled([
      store.enqueue([aRun()]),
      getRuns(store, {}),
      store.backup(`${place.folder}/copy.db`),
    ]);
    const laterCall = store.enqueue([aRun()]);

    for (const call of calls) assert.ok(call.status === "rejected" && call.reason instanceof StoreError);
    await assert.rejects(laterCall, StoreError);
    await store.close();
    assert.equal(countRuns(`${place.folder}/moved.db`), 1);
    if (replacement === "nothing") assert.throws(() => Deno.statSync(place.database), Deno.errors.NotFound);
    else assert.equal(countRuns(place.database), 0);
  });
}

Deno.test("a deleted file is noticed", needs("moved files"), async () => {
  await using place = await aPlace();
  const { host, advance } = movableHost();
  await using store = await SqliteStore.open(place.database, { host });
  await store.migrate();
  await Deno.remove(place.database);
  advance(1_001);

  const write = store.enqueue([aRun()]);

  await assert.rejects(write, StoreError);
  assert.throws(() => Deno.statSync(place.database), Deno.errors.NotFound);
});

for (const heedsAbort of [true, false]) {
  Deno.test(
    `stop() hands leases back when a step ${heedsAbort ? "heeds" : "ignores"} its abortSignal`,
    needs("signals"),
    async () => {
      await using place = await aPlace();
      await using store = await SqliteStore.open(place.database);
      const engine = anEngine(store, "hold");
      await using first = new Child("holding_worker.ts", place.database, place.ledgerPath);
      const { id } = await engine.trigger("hold", { holds: true, heedsAbort });
      await first.hear("executing");
      await using second = new Child("holding_worker.ts", place.database, place.ledgerPath);
      await second.hear("ready");
      await second.tell("go");

      const { code } = await first.end("SIGTERM");
      // The lease of the first would have lasted ten minutes more.
      const run = await inTime(engine.waitForRun(id), "the second worker was to take the run over");

      assert.equal(code, 0);
      assert.deepEqual(run.output, { pid: second.pid, execution: 2 });
      assert.equal((await engine.getSteps(id)).length, 2);
    },
  );
}

/** An empty folder with names for a database and a ledger; it is removed in the end. */
async function aPlace() {
  const folder = await Deno.makeTempDir({ prefix: "holdfast-" });
  const ledgerPath = `${folder}/ledger.txt`;
  return {
    folder,
    database: `${folder}/jobs.db`,
    ledgerPath,
    ledger: new Ledger(ledgerPath),
    [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }),
  };
}

/** An engine that triggers jobs, and looks on while other processes execute them. */
function anEngine(store: SqliteStore, ...jobNames: string[]): Engine {
  const jobs = jobNames.map((name) => defineJob({ name, input: anything(), run: () => {} }));
  return createEngine({ store, jobs: Object.fromEntries(jobs.map((job) => [job.name, job])) });
}

/** How many steps a worker has begun with. */
function countStarts(worker: Child, ledger: Ledger): number {
  return ledger.read().filter(([word, , , pid]) => word === "start" && pid === String(worker.pid)).length;
}

/** How things stood when a worker had been killed. */
interface Kill {
  runId: string;
  /** The steps that are in the database. */
  recorded: Set<string>;
  /** The steps that the worker had announced as recorded. */
  acknowledged: string[];
  ledgerLength: number;
}

async function lookAt(runId: string, engine: Engine, ledger: Ledger): Promise<Kill> {
  const steps = await engine.getSteps(runId);
  const lines = ledger.read();
  return {
    runId,
    recorded: new Set(steps.map(({ name }) => name)),
    acknowledged: lines.filter(([word, id]) => word === "ack" && id === runId).map(([, , name]) => name!),
    ledgerLength: lines.length,
  };
}

/** What SQLite itself says of the file: "ok", or what is wrong with it. */
function integrity(database: string): unknown {
  const connection = new DatabaseSync(database);
  try {
    return connection.prepare("PRAGMA integrity_check").get()!.integrity_check;
  } finally {
    connection.close();
  }
}

function countRuns(database: string): unknown {
  const connection = new DatabaseSync(database);
  try {
    return connection.prepare("SELECT count(*) AS runs FROM holdfast_runs").get()!.runs;
  } finally {
    connection.close();
  }
}

/** The real world, but its monotonic clock can be moved. */
function movableHost(): { host: Host; advance(ms: number): void } {
  let offset = 0;
  return {
    host: { ...systemHost, monotonic: () => systemHost.monotonic() + offset },
    advance: (ms) => void (offset += ms),
  };
}
