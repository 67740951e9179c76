import assert from "node:assert/strict";
import { z } from "zod";
import type { Engine } from "../../src/engine/engine.ts";
import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { ExportedHistory } from "../../src/model/exported_history.ts";
import { replay } from "../../src/replay/mod.ts";
import { forEachStore, type StoreTest } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";

/** What the steps of a job do. */
interface Work {
  reserve: () => unknown;
  say: (...items: string[]) => (context: Parameters<Parameters<StepContext["run"]>[1]>[0]) => unknown;
  release: () => unknown;
}

const REAL: Work = {
  reserve: () => "hold 7",
  say: (...items) => ({ stream }) => stream("words").pipe(ReadableStream.from(items)),
  release: () => "released",
};
const NEVER: Work = { reserve: neverCalled, say: () => neverCalled, release: neverCalled };

function neverCalled(): never {
  throw new Error("The function of a step was called");
}

const amount = z.object({ amount: z.string().transform(Number) });

/** What a changed job does otherwise. */
interface Change {
  returned?: (payload: unknown) => unknown;
  receive?: string;
  clean?: string;
}

/** A job that takes messages, answers one, asks a declared question, writes to a stream, and cleans up. */
function anOrder(work: Work, { returned = () => null, receive = "first", clean = "reserve" }: Change = {}) {
  return defineJob({
    name: "order",
    input: z.object({ id: z.number() }),
    messages: { paid: amount, note: z.string() },
    waits: { approve: z.object({ by: z.string().toUpperCase() }) },
    async run(step, { id }) {
      const hold = await step.run("reserve", work.reserve);
      const first = (await step.receive(receive, { names: ["paid", "note"], timeout: "1h" }))!;
      await step.respond(first, { id, thanks: first.name });
      await step.run("say", work.say("thank", "you"));
      const [approved, notes, none] = await Promise.all([
        step.wait("approve", { metadata: { hold } }),
        step.receive("notes", { names: ["note"], max: 10 }),
        step.receive("late", { names: ["paid"], timeout: "1m" }),
      ]);
      const rest = await step.receive("rest", { names: ["paid", "note"], timeout: 0, close: "timeout" });
      const { outcome } = approved;
      return {
        hold,
        first: first.payload,
        by: outcome === "signal" ? approved.payload.by : null,
        notes: notes.map(({ payload }) => payload),
        none,
        rest,
        more: returned(first.payload),
      };
    },
    onEnd: {
      async run(step, end) {
        const undone = await end.undo(clean, work.release);
        await step.run("say bye", work.say("bye"));
        return { undone, status: end.status, completed: end.completed };
      },
    },
  });
}

/** Executes an order to its end, with its clean-up, and exports both after each thing that happens. */
async function historiesOf({ store, host }: StoreTest): Promise<{ run: ExportedHistory[]; end: ExportedHistory }> {
  await using engine = createEngine({ store, host, jobs: { order: anOrder(REAL) } });
  const { id } = await engine.trigger("order", { id: 42 });
  const run: ExportedHistory[] = [];
  const goOn = async (happens: () => unknown) => {
    await happens();
    await engine.runUntilIdle();
    run.push(await engine.exportHistory(id));
  };
  await goOn(() => {});
  await goOn(() => engine.send(id, "paid", { amount: "12" }, { id: "m-1" }));
  await goOn(() => engine.send(id, "note", "careful", { id: "m-2" }));
  await goOn(() => signalOpen(engine, id));
  await goOn(() => host.advance(60_000));
  const { endRunId } = (await engine.getRun(id))!;
  return { run, end: await engine.exportHistory(endRunId!) };
}

async function signalOpen(engine: Engine, runId: string): Promise<void> {
  const [wait] = await engine.getWaits(runId);
  await engine.signal(wait!.id, { signalId: "s-1", payload: { by: "ana" } });
}

forEachStore(
  "a run with messages, an answer, a declared wait, a stream and a clean-up is replayed",
  async (context) => {
    const { run, end } = await historiesOf(context);
    const same = anOrder(NEVER);

    const reports = [];
    for (const history of [...run, end]) reports.push(await replay(JSON.parse(JSON.stringify(history)), same));

    const kinds = run.at(-1)!.records.map(({ kind, name, no }) => `${no} ${kind} ${name}`);
    assert.deepEqual(kinds, [
      "1 step reserve",
      "2 receive first",
      "3 step respond:m-1",
      "4 step say",
      "5 receive notes",
      "6 wait approve",
      "7 receive late",
      "8 receive rest",
    ]);
    assert.deepEqual(run.at(-1)!.output, {
      hold: "hold 7",
      first: { amount: 12 },
      by: "ANA",
      notes: ["careful"],
      none: null,
      rest: null,
      more: null,
    });
    assert.deepEqual(end.output, {
      undone: "released",
      status: "completed",
      completed: ["reserve", "respond:m-1", "say"],
    });
    assert.deepEqual(reports.map(({ outcome }) => outcome), [
      "goes on",
      "goes on",
      "goes on",
      "goes on",
      "ends the same",
      "ends the same",
    ]);
    for (const { unasked, issues, neededChanges, suggestion } of reports) {
      const none = { renamed: {}, removed: [], added: [] };
      assert.deepEqual({ unasked, issues, neededChanges, suggestion }, {
        unasked: [],
        issues: [],
        neededChanges: none,
        suggestion: null,
      });
    }
  },
);

forEachStore("a replay sees another receive, another value of a message, and another clean-up", async (context) => {
  const { run, end } = await historiesOf(context);
  const history = run.at(-1)!;

  const renamed = await replay(history, anOrder(NEVER, { receive: "other" }));
  const other = await replay(history, anOrder(NEVER, { returned: (payload) => payload }));
  const clean = await replay(end, anOrder(NEVER, { clean: "say" }));

  assert.deepEqual([renamed.outcome, renamed.isNew], ["held", { kind: "receive", name: "other" }]);
  assert.deepEqual(renamed.suggestion, { renamed: { first: "other" } });
  assert.equal(other.outcome, "ends otherwise");
  assert.deepEqual([clean.outcome, clean.isNew], ["held", { kind: "step", name: "undo say" }]);
});

forEachStore(
  "a stream is replayed without its items: what a step returned of them is recorded",
  async ({ store, host }) => {
    const aChat = (write: Work["say"], read: (count: number) => unknown) =>
      defineJob({
        name: "chat",
        input: z.null(),
        async run(step) {
          let attempts = 0;
          await step.run("say", async (context) => {
            attempts = context.attempt;
            return await write("a", `b${attempts}`)(context);
          }, { retry: { maxAttempts: 2, delay: 0 } });
          return await step.run("count", () => read(attempts));
        },
      });
    let failures = 1;
    const failing: Work["say"] = (...items) => async (context) => {
      await REAL.say(...items)(context);
      if (failures-- > 0) throw new Error("cut");
      return items.length;
    };
    const job = aChat(failing, (count) => count);
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger("chat", null);
    await engine.runUntilIdle();
    const [stream] = await engine.getStreams(id);
    const history = await engine.exportHistory(id);

    const report = await replay(history, aChat(NEVER.say, neverCalled));

    assert.deepEqual([stream!.items, history.output], [2, 2]);
    assert.deepEqual(history.records.map(({ kind, name }) => [kind, name]), [["step", "say"], ["step", "count"]]);
    assert.deepEqual([report.outcome, report.unasked], ["ends the same", []]);
    assert.deepEqual((await engine.getStreams(id))[0], stream);
  },
);
