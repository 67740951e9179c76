import type { OpenEngine } from "../engine.ts";
import { openHoldfast } from "../engines/holdfast.ts";
import { openPeer } from "../peers.ts";
import { RawDatabase } from "../raw_database.ts";
import type { Measure, Trial, Workload } from "../workload.ts";

/** How long it takes to bring a run back to where it was. */
export const replay: Workload = {
  name: "replay",
  title: "Replaying stored steps",
  about:
    "From the beginning of the claim until the job has passed its last stored step. Raw claims the run, reads its " +
    "steps with one query and parses their outputs. The peers have 900 steps (openworkflow allows 1,000; durably takes " +
    "the run up again when the lease of a dead worker has ended: its claim is not counted).",
  trials: [
    {
      name: "10,000 steps",
      figures: [
        { name: "", unit: "ms", goals: [{ below: 30 }] },
        { name: "a step", unit: "µs", goals: [{ below: 3 }] },
      ],
      rounds: 5,
      contenders: { raw: raw(10_000), holdfast: replayed(openHoldfast, 10_000) },
    },
    peerTrial(),
  ],
};

function peerTrial(): Trial {
  return {
    name: "900 steps",
    figures: [{ name: "a step", unit: "µs", goals: [] }],
    rounds: 5,
    peerRounds: 3,
    contenders: {
      raw: lastOf(raw(900)),
      holdfast: lastOf(replayed(openHoldfast, 900)),
      durably: lastOf(replayed(openPeer("durably"), 900)),
      openworkflow: lastOf(replayed(openPeer("openworkflow"), 900)),
    },
  };
}

function lastOf(measure: Measure): Measure {
  return async (setting) => (await measure(setting)).slice(-1);
}

function raw(steps: number): Measure {
  return ({ folder, size }) => {
    const count = size(steps, 100);
    using raw = new RawDatabase(`${folder}/raw.db`);
    raw.insertRun("replayed", "null");
    raw.transaction(() => {
      const [run] = raw.claim("replayed", 1);
      for (let n = 0; n < count; n++) raw.recordStep(run!, `step ${n}`, JSON.stringify({ n }));
      raw.connection.exec("UPDATE runs SET status = 'pending'");
    });
    const query = raw.connection.prepare("SELECT name, output FROM steps WHERE run_seq = ?");
    const startedAt = performance.now();
    const [run] = raw.transaction(() => raw.claim("replayed", 1));
    const outputs = new Map(query.all(run!.seq).map(({ name, output }) => [name, JSON.parse(output as string)]));
    let sum = 0;
    for (let n = 0; n < count; n++) sum += outputs.get(`step ${n}`).n;
    const ms = performance.now() - startedAt;
    if (sum !== count * (count - 1) / 2) throw new Error("The replay was not complete");
    return Promise.resolve([ms, ms * 1_000 / count]);
  };
}

function replayed(open: OpenEngine, steps: number): Measure {
  return async ({ folder, size }) => {
    const count = size(steps, 100);
    let executions = 0;
    let executed = 0;
    let enteredAt = 0;
    let passedAt = 0;
    await using engine = await open({
      path: `${folder}/jobs.db`,
      jobs: {
        replayed: async ({ step, replay }) => {
          executions += 1;
          const one = (n: number) =>
            step(`step ${n}`, () => {
              executed += 1;
              return { n };
            });
          // The first time side by side: nothing but the replay is measured.
          if (executions === 1) await sideBySide(count, one);
          else {
            enteredAt = performance.now();
            for (let n = 0; n < count; n++) await one(n);
            passedAt = performance.now();
          }
          await replay();
        },
      },
    });
    await engine.trigger("replayed", { n: 1 });
    await engine.start();
    await engine.completed(1);
    if (executed !== count || executions !== 2) throw new Error("Not every step was replayed");
    const ms = passedAt - (engine.claimedAt ?? enteredAt);
    return [ms, ms * 1_000 / count];
  };
}

async function sideBySide(count: number, work: (n: number) => Promise<unknown>): Promise<void> {
  for (let done = 0; done < count; done += 100) {
    await Promise.all(Array.from({ length: Math.min(100, count - done) }, (_, n) => work(done + n)));
  }
}
