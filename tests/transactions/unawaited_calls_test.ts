import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { AsyncTransactionCalls } from "../../src/model/transaction.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { ON_PGLITE } from "./for_each_source.ts";
import { JOINED } from "./joined_stores.ts";

const chat = defineJob({
  name: "chat",
  input: z.object({ text: z.string() }),
  messages: { text: z.string() },
  run: () => {},
});
const slow = defineJob({
  name: "slow",
  input: z.string().refine((text) => Promise.resolve(text !== "")),
  run: () => {},
});
const jobs = { chat, slow };
const RIGHT = { text: "hi" };

type Tx = AsyncTransactionCalls;

const [name, openStore] = JOINED[1]!;

const REFUSED: [call: string, ask: (tx: Tx) => Promise<unknown>, error: { name: string }][] = [
  ["trigger", (tx) => tx.trigger("chat", {}), { name: "ValidationError" }],
  ["trigger with an asynchronous schema", (tx) => tx.trigger(slow, ""), { name: "ValidationError" }],
  ["signal", (tx) => tx.signal("wait", { signalId: "", payload: 1 }), { name: "ValidationError" }],
  ["send", (tx) => tx.send("unknown", "text", "hi"), { name: "NotFoundError" }],
];

for (const [call, ask, error] of REFUSED) {
  Deno.test(
    `${name}: a ${call} that is refused rolls back, if the function has not looked at it`,
    ON_PGLITE,
    async () => {
      const { store, source, end } = await openStore();
      const engine = createEngine({ store, jobs, dataSources: { app: source } });

      const refused = engine.transaction(
        source,
        (async (tx: Tx) => {
          await tx.trigger(chat, RIGHT);
          ask(tx);
        }) as never,
      );

      await assert.rejects(refused, error);
      assert.equal((await engine.getRuns()).total, 0);
      await engine.stop();
      await end();
    },
  );

  Deno.test(`${name}: a ${call} that is refused can be caught later, without await`, ON_PGLITE, async () => {
    const { store, source, end } = await openStore();
    const engine = createEngine({ store, jobs, dataSources: { app: source } });
    const caught: unknown[] = [];

    await engine.transaction(
      source,
      (async (tx: Tx) => {
        await tx.trigger(chat, RIGHT);
        ask(tx).catch((error) => caught.push(error));
      }) as never,
    );

    assert.deepEqual(caught.map((error) => (error as Error).name), [error.name]);
    assert.equal((await engine.getRuns()).total, 1);
    await engine.stop();
    await end();
  });
}

Deno.test(`${name}: a transaction waits for a trigger that its function has not awaited`, ON_PGLITE, async () => {
  const { store, source, end } = await openStore();
  const engine = createEngine({ store, jobs, dataSources: { app: source } });

  const { runs } = await engine.transaction(source, ((tx: Tx) => void tx.trigger(slow, "hi")) as never);

  assert.deepEqual(runs!.map(({ jobName }) => jobName), ["slow"]);
  await engine.stop();
  await end();
});

Deno.test(`${name}: a call after the function has returned is refused, and not in silence`, ON_PGLITE, async () => {
  const { store, source, end } = await openStore();
  const engine = createEngine({ store, jobs, dataSources: { app: source } });
  const late = Promise.withResolvers<PromiseRejectionEvent>();
  const hear = (event: PromiseRejectionEvent) => {
    event.preventDefault();
    late.resolve(event);
  };
  addEventListener("unhandledrejection", hear);

  await engine.transaction(source, ((tx: Tx) => void setTimeout(() => tx.trigger(chat, RIGHT))) as never);
  const { reason } = await late.promise;

  assert.equal(reason.message, "The transaction has ended");
  assert.equal((await engine.getRuns()).total, 0);
  removeEventListener("unhandledrejection", hear);
  await engine.stop();
  await end();
});

Deno.test(`${name}: a transaction waits for the calls that others have led to`, ON_PGLITE, async () => {
  const { store, source, end } = await openStore();
  const engine = createEngine({ store, jobs, dataSources: { app: source } });
  const work = (tx: Tx) =>
    void (async () => {
      await tx.trigger(slow, "hi");
      tx.trigger("chat", {}); // refused
    })();

  await assert.rejects(engine.transaction(source, work as never), { name: "ValidationError" });
  assert.equal((await engine.getRuns()).total, 0);
  await engine.stop();
  await end();
});
