import assert from "node:assert/strict";
import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import type { DataSource } from "../../src/model/data_source.ts";
import { ConflictError, NotFoundError, ValidationError } from "../../src/model/error.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { KeyedRun } from "../../src/model/job/job_messages.ts";
import type {
  AsyncTransactionCalls,
  TransactionCalls,
  TransactionMessage,
  TransactionSendOptions,
} from "../../src/model/transaction.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anything } from "../support/stores/for_each_store.ts";
import { forEachSource, type Rows } from "./for_each_source.ts";
import { JOINED } from "./joined_stores.ts";

const text = z.object({ text: z.string().trim() });
const chat = defineJob({
  name: "chat",
  input: anything,
  messages: { text, slow: text.refine(() => Promise.resolve(true)) },
  run: async (step) => (await step.receive("text", { close: "always" }))!.payload,
});
const jobs = { chat };
const HI = { text: " hi " };

type Tx = TransactionCalls | AsyncTransactionCalls;
type Sent = [to: string | KeyedRun, payload?: unknown, options?: TransactionSendOptions];

/** A function of a transaction that sends messages, one after another: it is synchronous on SQLite. */
function sending({ kind }: DataSource, messages: Sent[], before: (tx: Tx) => unknown = () => {}) {
  const send = (tx: Tx, at: number): unknown => {
    if (at === messages.length) return;
    const [to, payload = HI, options] = messages[at]!;
    const sent = tx.send(to, "text", payload, options);
    return kind === "sqlite" ? send(tx, at + 1) : (sent as Promise<TransactionMessage>).then(() => send(tx, at + 1));
  };
  if (kind === "sqlite") {
    return ((tx: Tx) => {
      before(tx);
      send(tx, 0);
    }) as never;
  }
  return (async (tx: Tx) => {
    await before(tx);
    await send(tx, 0);
  }) as never;
}

for (const [name, openStore] of JOINED) {
  Deno.test(`${name}: tx.send() is one commit with the runs that receive it`, async () => {
    const { store, source, end } = await openStore();
    const engine = createEngine({ store, jobs, dataSources: { app: source } });
    const ends: unknown[] = [];
    const trace = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate: null };
    engine.use({
      name: "tracer",
      install: ({ around }) =>
        around({
          send: async (info, next) => {
            info.trace = trace;
            const end = await next();
            ends.push(end.kind);
            return end;
          },
        }),
    });
    const published: string[] = [];
    engine.on("run:trigger", ({ runId }) => published.push(runId));
    const { id } = await engine.trigger(chat, null);
    const add = (tx: Tx) => tx.trigger("chat", 1, { idempotencyKey: "b" });
    const sent: Sent[] = [
      [id, HI, { id: "m1", by: "ada" }],
      [{ job: chat, key: "b" }],
      [{ job: "chat", key: "c" }, HI, { start: { input: 2 } }],
    ];

    const { messages, runs } = await engine.transaction(
      source,
      sending(source, sent, add),
    );
    const again = await engine.transaction(source, sending(source, sent.slice(0, 1)));

    assert.deepEqual(messages!.map(({ runId, disposition, started }) => [runId, disposition, started]), [
      [id, "accepted", false],
      [runs![0]!.id, "accepted", false],
      [published.at(-1), "accepted", true],
    ]);
    assert.deepEqual(published, [id, runs![0]!.id, messages![2]!.runId]);
    assert.deepEqual(again.messages!.map(({ disposition }) => disposition), ["duplicate"]);
    assert.deepEqual(ends, ["accepted", "accepted", "accepted", "duplicate"]);
    assert.deepEqual((await engine.getMessages(id)).map(({ id, sentBy }) => [id, sentBy]), [["m1", "ada"]]);
    await engine.runUntilIdle();
    for (const { runId } of messages!) assert.deepEqual((await engine.getRun(runId))!.output, { text: "hi" });
    await engine.stop();
    await end();
  });

  Deno.test(`${name}: tx.send() reaches a run by the id of its trigger in the same transaction`, async () => {
    const { store, source, end } = await openStore();
    const engine = createEngine({ store, jobs, dataSources: { app: source } });
    const work = source.kind === "sqlite"
      ? (tx: TransactionCalls) => void tx.send(tx.trigger(chat, 1).runId, "text", HI)
      : async (tx: AsyncTransactionCalls) => void tx.send((await tx.trigger(chat, 1)).runId, "text", HI); // not awaited

    const { messages, runs } = await engine.transaction(source, work as never);

    assert.deepEqual(messages!.map(({ runId }) => runId), runs!.map(({ id }) => id));
    await engine.stop();
    await end();
  });

  Deno.test(`${name}: tx.send() that is refused in the call can be caught; a refusal by the run rolls back`, async () => {
    const { store, source, end } = await openStore();
    const engine = createEngine({ store, jobs, dataSources: { app: source } });
    const [open, ended] = [await engine.trigger(chat, null), await engine.trigger(chat, null)];
    await engine.cancel(ended.id);
    const attempt = (...sent: Sent[]) =>
      engine.transaction(source, sending(source, sent, (tx) => tx.trigger("chat", 1) as never));
    const caught = source.kind === "sqlite"
      ? (tx: TransactionCalls) => {
        assert.throws(() => tx.send("unknown", "text", HI), NotFoundError);
        assert.throws(() => tx.send(open.id, "text", 1), ValidationError);
        assert.throws(() => tx.send(open.id, "other", HI), /has no message "other"/);
        tx.send(open.id, "text", HI);
      }
      : async (tx: AsyncTransactionCalls) => {
        await assert.rejects(tx.send("unknown", "text", HI), NotFoundError);
        await assert.rejects(tx.send(open.id, "text", 1), ValidationError);
        await assert.rejects(tx.send(open.id, "other", HI), /has no message "other"/);
        await tx.send(open.id, "text", HI);
      };

    await assert.rejects(attempt([open.id], ["unknown"]), NotFoundError);
    await assert.rejects(attempt([open.id], [ended.id]), { name: "ConflictError", code: "run_ended" });
    await assert.rejects(attempt([open.id], [{ job: chat, key: "none" }]), NotFoundError);
    await assert.rejects(attempt([open.id, HI, { id: "m" }], [open.id, { text: "" }, { id: "m" }]), ConflictError);
    const none = await engine.getMessages(open.id);
    const { messages } = await engine.transaction(source, caught as never);

    assert.deepEqual(none, []);
    assert.equal((await engine.getRuns()).total, 2);
    assert.deepEqual(messages!.map(({ disposition }) => disposition), ["accepted"]);
    await engine.stop();
    await end();
  });

  Deno.test(`${name}: tx.send() in a step sends once, also to its own run, though an attempt has failed`, async () => {
    const { store, source, end } = await openStore();
    let attempts = 0;
    let [own, other] = ["", ""];
    const self = defineJob({
      name: "self",
      input: anything,
      messages: { text },
      run: async (step) => {
        await step.transaction(
          "book",
          source as DataSource<Tx>,
          sending(source, [[own], [other], [{ job: "chat", key: "k" }, HI, { start: { input: 1 } }]], () => {
            attempts += 1;
          }),
        );
        const got = await step.receive("text", { timeout: 0, max: 5 });
        if (attempts === 1) {
          await step.transaction("fail", source as DataSource<Tx>, sending(source, [[other]], failOnce) as never, {
            retry: { maxAttempts: 2, delay: 0 },
          });
        }
        return got.length;
      },
    });
    let failures = 0;
    const failOnce = () => {
      if (failures++ === 0) throw new Error("not yet");
    };
    const engine = createEngine({ store, jobs: { chat, self }, dataSources: { app: source } });
    other = (await engine.trigger(chat, null, { delay: "1h" })).id;
    own = (await engine.trigger(self, null)).id;

    await engine.runUntilIdle();

    assert.equal((await engine.getRun(own))!.output, 1);
    assert.equal((await engine.getMessages(other)).length, 2);
    assert.equal((await engine.jobs.chat.getRuns()).total, 2);
    await engine.stop();
    await end();
  });

  Deno.test(`${name}: tx.send() in a step to a job that the engine has not does not list its jobs`, async () => {
    const { store, source, end } = await openStore();
    const order = defineJob({
      name: "order",
      input: anything,
      run: (step) => step.transaction("book", source, sending(source, [[{ job: "other", key: "k" }]])),
      retry: { maxAttempts: 1 },
    });
    const engine = createEngine({ store, jobs: { chat, order }, dataSources: { app: source } });
    const { id } = await engine.trigger(order, null);

    await engine.runUntilIdle();

    assert.match(
      (await engine.getRun(id))!.error!,
      /tx\.send\(\) cannot send to a run of job "other": the engine that/,
    );
    await engine.stop();
    await end();
  });
}

Deno.test("SQLite: tx.send() refuses a message whose schema is asynchronous", async () => {
  const { store, source, end } = await JOINED[0]![1]();
  const engine = createEngine({ store, jobs, dataSources: { app: source } });
  const { id } = await engine.trigger(chat, null);

  const call = engine.transaction(source, ((tx: TransactionCalls) => void tx.send(id, "slow", HI)) as never);

  await assert.rejects(call, { name: "TypeError", message: /The schema of message "slow" is asynchronous/ });
  assert.deepEqual(await engine.getMessages(id), []);
  await engine.stop();
  await end();
});

const tableOf = ({ source }: Rows) => source.kind === "sqlite" ? "holdfast_outbox" : "holdfast.outbox";

/** Waits until the outbox has no more rows than so many, which are refused. */
async function untilEmpty(rows: Rows, left = 0): Promise<void> {
  for (let found = await rows.outbox(); found.length > left; found = await rows.outbox()) {
    const refused = found.filter((row) => !row.endsWith(" "));
    assert.ok(refused.length <= left, refused.join("\n"));
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Loses the next answer that rows are deleted, as if the process had died before. */
function dieBeforeDelete({ source: { effects } }: Rows): void {
  const { deleteRows } = effects;
  effects.deleteRows = () => {
    effects.deleteRows = deleteRows.bind(effects);
    return Promise.reject(new Error("the process dies"));
  };
}

forEachSource("tx.send() in a database of its own is relayed before the transaction resolves", async (rows) => {
  await using engine = createEngine({ store: new MemoryStore(), jobs, dataSources: { app: rows.source } });
  const { id } = await engine.trigger(chat, null, { idempotencyKey: "a" });
  const start = { input: 1, labels: { org: "acme" } };

  const { messages } = await engine.transaction(
    rows.source,
    sending(rows.source, [
      [id, HI, { id: "m1", by: "ada" }],
      [{ job: chat, key: "a" }, HI],
      [{ job: "chat", key: "b" }, HI, { id: "m1", start }],
      [id, HI, { id: "m1", by: "ada" }],
    ], (tx) => rows.insert(tx as never, "a")),
  );

  const [first, second, started, again] = messages!;
  assert.deepEqual(first, { runId: id, messageId: "m1", disposition: "accepted", started: false });
  assert.deepEqual([second!.runId, second!.disposition], [id, "accepted"]);
  assert.deepEqual([started!.started, started!.messageId, again!.disposition], [true, "m1", "duplicate"]);
  const { input, labels } = (await engine.getRun(started!.runId))!;
  assert.deepEqual([input, labels], [1, { org: "acme" }]);
  const inbox = await engine.getMessages(id);
  assert.deepEqual(inbox.map(({ id, sentBy }) => [id, sentBy]), [["m1", "ada"], [second!.messageId, null]]);
  assert.deepEqual([await rows.names(), await rows.outbox()], [["a"], []]);
  await engine.runUntilIdle();
  assert.deepEqual((await engine.getRun(id))!.output, { text: "hi" });
});

forEachSource("tx.send() is gone with a transaction that throws, and is checked in the call", async (rows) => {
  await using engine = createEngine({ store: new MemoryStore(), jobs, dataSources: { app: rows.source } });
  const { id } = await engine.trigger(chat, null, { idempotencyKey: "a" });
  const to = { job: "chat", key: "a" };
  const attempt = (...sent: Sent[]) => engine.transaction(rows.source, sending(rows.source, sent));

  await assert.rejects(attempt([id], [to, { text: 1 }]), { name: "ValidationError", code: "invalid_input" });
  await assert.rejects(attempt([id], [{ job: "other", key: "a" }]), NotFoundError);
  await assert.rejects(attempt([id], [id, HI, { id: "" }]), ValidationError);
  await assert.rejects(attempt([id], [id, HI, { start: { input: 1 } }]), /start needs a key/);
  await assert.rejects(attempt([id], [to, HI, { start: { input: 1, coalesce: "pending" } as never }]), ValidationError);

  assert.deepEqual([await rows.outbox(), await engine.getMessages(id)], [[], []]);
});

forEachSource("a message that was relayed and not deleted is sent once, with the run that it starts", async (rows) => {
  await using engine = createEngine({ store: new MemoryStore(), jobs, dataSources: { app: rows.source } });
  const { id } = await engine.trigger(chat, null);
  await engine.migrate();
  dieBeforeDelete(rows);
  const started: Sent = [{ job: "chat", key: "k" }, HI, { start: { input: 1 } }];

  await engine.transaction(rows.source, sending(rows.source, [[id], started]));
  const left = await rows.outbox();
  await rows.execute(`UPDATE ${tableOf(rows)} SET taken_until = 0`);
  await engine.start();
  await untilEmpty(rows);
  await engine.stop();

  assert.deepEqual(left, ["send text ", "send text "]);
  const { runs } = await engine.getRuns();
  assert.equal(runs.length, 2);
  for (const run of runs) assert.equal((await engine.getMessages(run.id)).length, 1);
});

forEachSource("tx.send() in a step whose first attempt has failed sends once", async (rows) => {
  const store = new MemoryStore();
  let attempts = 0;
  let runId = "";
  const order = defineJob({
    name: "order",
    input: anything,
    run: (step) =>
      step.transaction(
        "book",
        rows.source as DataSource<Tx>,
        sending(rows.source, [[runId]], (tx) => {
          const sent = tx.send({ job: "chat", key: "k" }, "text", HI, { start: { input: ++attempts } });
          if (attempts === 1) throw new Error("not yet");
          return sent;
        }),
        { retry: { maxAttempts: 2, delay: 0 } },
      ),
  });
  await using engine = createEngine({ store, jobs: { chat, order }, dataSources: { app: rows.source } });
  runId = (await engine.trigger(chat, null)).id;
  const { id } = await engine.trigger(order, null, { labels: { org: "acme" } });

  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  const { runs } = await engine.jobs.chat.getRuns();
  assert.deepEqual(runs.map(({ input, labels }) => [input, labels]).toReversed(), [[null, {}], [2, {}]]);
  for (const run of runs) assert.equal((await engine.getMessages(run.id)).length, 1);
});

forEachSource("engine.inTransaction() sends with the transaction of the user, and with no other", async (rows) => {
  await using engine = createEngine({ store: new MemoryStore(), jobs, dataSources: { app: rows.source } });
  await engine.migrate();
  const { id } = await engine.trigger(chat, null);
  const send = (client: unknown, messageId: string) =>
    engine.inTransaction(rows.source, client).send(id, "text", HI, { id: messageId });
  const rollBack = async (client: unknown) => {
    const sent = send(client, "m1");
    if (rows.source.kind === "sqlite") (client as DatabaseSync).exec("ROLLBACK; BEGIN");
    await sent;
    if (rows.source.kind === "postgres") throw new Error("no");
  };

  await rows.begin(rollBack).catch(() => {});
  let sent: TransactionMessage | undefined;
  await rows.begin(async (client) => sent = await send(client, "m2"));
  dieBeforeDelete(rows);
  await engine.start();
  while ((await engine.getMessages(id)).length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await rows.execute(`UPDATE ${tableOf(rows)} SET taken_until = 0`);
  await untilEmpty(rows);

  assert.deepEqual(sent, { messageId: "m2" });
  assert.deepEqual((await engine.getMessages(id)).map(({ id }) => id), ["m2"]);
});

forEachSource("a message by SQL is sent; one that is refused stays with the reason", async (rows) => {
  await using engine = createEngine({ store: new MemoryStore(), jobs, dataSources: { app: rows.source } });
  await engine.migrate();
  const insert = (options: object, value = '{"text": "a"}') =>
    rows.execute(
      `INSERT INTO ${tableOf(rows)} (kind, name, value, options) VALUES ('send', 'text', '${value}',
        '${JSON.stringify(options)}')`,
    );
  const { id } = await engine.trigger(chat, null);
  await insert({ to: id });
  await insert({ to: { job: "chat", key: "k" }, start: { input: 1 } });
  await insert({ to: "unknown" });
  await insert({ to: id }, "1");
  await insert({});

  await engine.start();
  await untilEmpty(rows, 3);
  const { messages } = await engine.transaction(rows.source, sending(rows.source, [["none"]]));

  assert.equal((await engine.getMessages(id)).length, 1);
  assert.equal((await engine.getRuns()).total, 2);
  assert.equal(messages, null);
  const refused = await rows.outbox();
  assert.equal(refused.length, 4);
  for (
    const [at, message] of [
      /There is no run "unknown"/,
      /The payload of message "text" of job "chat" does not fit its schema/,
      /A message is sent to the id of a run, or to/,
      /There is no run "none"/,
    ].entries()
  ) assert.match(refused[at]!, message);
});

forEachSource("an engine that has not the job of a message leaves it to another one", async (rows) => {
  const store = new MemoryStore();
  const other = defineJob({ name: "other", input: anything, run: () => null });
  await using poor = createEngine({ store, jobs: { other }, dataSources: { app: rows.source } });
  await using engine = createEngine({ store, jobs, dataSources: { app: rows.source } });
  await engine.migrate();
  const { id } = await engine.trigger(chat, null);
  const { messages, runs } = await poor.transaction(
    rows.source,
    sending(rows.source, [[id]], (tx) => tx.trigger("other", null)),
  );
  const left = await rows.outbox();

  await rows.execute(`UPDATE ${tableOf(rows)} SET taken_until = 0`);
  await poor.transaction(rows.source, sending(rows.source, [], (tx) => tx.trigger("other", null)));
  await engine.start();
  await untilEmpty(rows);

  assert.deepEqual([messages, runs, left], [null, null, ["send text "]]);
  assert.equal((await engine.getMessages(id)).length, 1);
  assert.equal((await poor.getRuns({ jobName: "other" })).total, 2);
});
