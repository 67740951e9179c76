import { createEngine, defineJob, type Engine, type Job, SqliteStore } from "@holdfast/jobs";
import { benchInput } from "../engines/holdfast.ts";
import type { Setting } from "../setting.ts";
import type { Slice } from "../slices.ts";
import { percentile } from "../statistics.ts";
import { ratioOf, takeTurns } from "../take_turns.ts";
import type { Workload } from "../workload.ts";

const ROUNDS = 15;
const AT_ONCE = 100;
const HOT_TURNS = 200;
const PARKED_TURNS = 60;
const RUNS = 50;
const STEPS = 5;

/** What messages and clean-ups cost, beside what is nearest to them. */
export const messages: Workload = {
  name: "messages",
  title: "Messages to runs, and clean-ups",
  about:
    "100 messages at once to a run, beside 100 signals to waits that a run has prepared. A chat, a message and a step a " +
    "turn: a hot turn is answered before the run parks; before a parked turn the run has parked, so each turn replays " +
    "all turns before it, beside the same with waits and signals. Runs of 5 steps whose `onEnd` does not begin, beside " +
    "runs without. On SQLite; medians of 15 rounds in turn.",
  trials: [
    {
      name: "a message",
      figures: [
        { name: "CPU of a send", unit: "µs", goals: [] },
        { name: "CPU, of a signal", unit: "times", goals: [{ below: 1.5 }] },
      ],
      rounds: 1,
      contenders: { holdfast: measureSends },
    },
    {
      name: "a turn of a chat",
      figures: [
        { name: "hot", unit: "ms", goals: [{ below: 1.5 }] },
        { name: "hot, CPU", unit: "ms", goals: [] },
        { name: "parked, CPU", unit: "ms", goals: [] },
        { name: "parked, CPU, of one with a wait", unit: "times", goals: [{ below: 1.15 }] },
      ],
      rounds: 1,
      contenders: { holdfast: measureTurns },
    },
    {
      name: "a clean-up that does not begin",
      figures: [{ name: "CPU, of a run without", unit: "times", goals: [{ below: 1.05 }] }],
      rounds: 1,
      contenders: { holdfast: measureEnds },
    },
  ],
};

const inbox = { text: benchInput };
const input = { n: 1 };

const listener = defineJob({
  name: "listener",
  input: benchInput,
  messages: inbox,
  run: (step) => step.sleep("long", "1h"),
});
const asker = defineJob({
  name: "asker",
  input: benchInput,
  async run(step, { n }) {
    for (let at = 0; at < n; at++) await step.prepareWait(`question ${at}`);
    await step.sleep("long", "1h");
  },
});
const chat = defineJob({
  name: "chat",
  input: benchInput,
  messages: inbox,
  async run(step, { n }) {
    for (let at = 0; at < n; at++) {
      await step.receive("text");
      await step.run("reply", () => at);
    }
  },
});
const talk = defineJob({
  name: "talk",
  input: benchInput,
  async run(step, { n }) {
    for (let at = 0; at < n; at++) {
      await step.wait("text");
      await step.run("reply", () => at);
    }
  },
});
const jobs = { listener, asker, chat, talk };

/** An engine on a file of its own, and what closes both. */
async function open<J extends Record<string, Job>>(path: string, jobs: J) {
  const store = await SqliteStore.open(path);
  const engine: Engine<J> = createEngine({ store, jobs, logger: null });
  const end = async () => {
    await engine.stop();
    await store.close();
  };
  return { engine, end };
}

async function measureSends({ folder, size }: Setting): Promise<number[]> {
  const count = size(AT_ONCE, 5);
  const [signals, sends] = await takeTurns(
    [await answers(`${folder}/waits.db`, count), await mails(`${folder}/messages.db`, count)],
    size(ROUNDS, 2),
  );
  const cpu = percentile(sends!.map(({ work }) => 1_000 * work / count), 0.5);
  return [cpu, 1 / ratioOf(signals!, sends!, "work").median];
}

/** Sends messages to a run that sleeps, all at once. */
async function mails(path: string, count: number): Promise<Slice> {
  const { engine, end } = await open(path, jobs);
  let runId = "";
  return {
    before: async () => {
      ({ id: runId } = await engine.jobs.listener.trigger(input));
      await engine.runUntilIdle();
    },
    work: () => Promise.all(Array.from({ length: count }, (_, n) => engine.jobs.listener.send(runId, "text", { n }))),
    end,
  };
}

/** Answers the waits of a run that sleeps, all at once. */
async function answers(path: string, count: number): Promise<Slice> {
  const { engine, end } = await open(path, jobs);
  let waitIds: string[] = [];
  return {
    before: async () => {
      const { id } = await engine.jobs.asker.trigger({ n: count });
      await engine.runUntilIdle();
      waitIds = (await engine.getWaits(id)).map((wait) => wait.id);
    },
    work: () => Promise.all(waitIds.map((id, n) => engine.signal(id, { signalId: `${n}`, payload: { n } }))),
    end,
  };
}

async function measureTurns({ folder, size }: Setting): Promise<number[]> {
  const [hotTurns, parkedTurns] = [size(HOT_TURNS, 5), size(PARKED_TURNS, 3)];
  const [hot, parked, waits] = await takeTurns([
    await turns(`${folder}/hot.db`, "chat", hotTurns, "step:complete"),
    await turns(`${folder}/parked.db`, "chat", parkedTurns, "run:waiting"),
    await turns(`${folder}/waits.db`, "talk", parkedTurns, "run:waiting"),
  ], size(ROUNDS, 2));
  const median = (costs: typeof hot, kind: "time" | "work", count: number) =>
    percentile(costs!.map((cost) => cost[kind] / count), 0.5);
  return [
    median(hot, "time", hotTurns),
    median(hot, "work", hotTurns),
    median(parked, "work", parkedTurns),
    1 / ratioOf(waits!, parked!, "work").median,
  ];
}

/** Talks to a run, each time when an event has told that it has answered, or has parked. */
async function turns(
  path: string,
  name: "chat" | "talk",
  count: number,
  next: "step:complete" | "run:waiting",
): Promise<Slice> {
  const { engine, end } = await open(path, jobs);
  let told: (waitId: string | null) => void = () => {};
  engine.on(next, (event) => told(event.type === "run:waiting" ? event.waitId : null));
  await engine.start();
  const isTold = () => new Promise<string | null>((resolve) => told = resolve);
  let runId = "";
  let waitId: string | null = null;
  const say = async (n: number) => {
    if (name === "chat") await engine.jobs.chat.send(runId, "text", { n });
    else await engine.signal(waitId!, { signalId: "answer", payload: { n } });
  };
  return {
    before: async () => {
      const parks = new Promise<void>((resolve) => {
        const off = engine.on("run:waiting", (event) => {
          waitId = event.waitId;
          off();
          resolve();
        });
      });
      ({ id: runId } = await engine.jobs[name].trigger({ n: count + 1 }));
      await parks;
    },
    work: async () => {
      for (let n = 0; n < count; n++) {
        const answered = isTold();
        await say(n);
        waitId = await answered ?? waitId;
      }
    },
    end,
  };
}

async function measureEnds({ folder, size }: Setting): Promise<number[]> {
  const count = size(RUNS, 3);
  const [plain, ended] = await takeTurns(
    [await drains(`${folder}/plain.db`, false, count), await drains(`${folder}/ended.db`, true, count)],
    size(4 * ROUNDS, 2),
  );
  return [1 / ratioOf(plain!, ended!, "work").median];
}

/** Executes runs of some steps. */
async function drains(path: string, hasEnd: boolean, count: number): Promise<Slice> {
  const steps = defineJob({
    name: "steps",
    input: benchInput,
    ...(hasEnd ? { onEnd: { statuses: ["failed", "cancelled"], run: () => {} } } : {}),
    async run(step) {
      for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, () => n);
    },
  });
  const { engine, end } = await open(path, { steps });
  const items = Array.from({ length: count }, () => ({ input }));
  return {
    work: async () => {
      await engine.jobs.steps.batchTrigger(items);
      await engine.runUntilIdle();
    },
    end,
  };
}
