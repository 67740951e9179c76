import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { SqliteStore } from "../../../mod.ts";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { audit } from "./audit.ts";
import { Customers } from "./customers.ts";
import type { Patience } from "./patience.ts";
import { Place } from "./place.ts";
import { Service, WORKER } from "./service.ts";

const HOUR_S = 3_600;
const HOUR_MS = HOUR_S * 1_000;
const STEPS = 5; // that the worker has to execute under each clock

/** The clock of one of two workers is an hour ahead, or behind; and it dies with leases that last for an hour. */
export const movedClock: Scenario = {
  name: "a clock that is moved",
  async run({ isBrief, patience }): Promise<ScenarioResult> {
    await using place = await Place.make();
    const clock = `${place.folder}/clock.bin`;
    setClock(clock, 0);
    const shim = await compileShim(place.folder);
    if ("reason" in shim) return { outcome: "skipped", reason: shim.reason };
    const env = { LD_PRELOAD: shim.path, CLOCK_SHIM: clock };
    await using services = new AsyncDisposableStack();
    const steady = services.use(await Service.start(place));
    // Without retry delays: the end of one is an instant of the wall clock, like that of a sleep, so it moves with it.
    // And nobody who waits one out can know that by the clock of another process its lease is over; outside of this
    // scenario all processes on one machine have the same clock.
    await using customers = new Customers(steady, patience, { clients: 2, hasRetries: false });
    await using store = await SqliteStore.open(place.database);
    const takenOver: number[] = [];
    let executed = 0;

    for (let round = 0; round < (isBrief ? 1 : 8); round++) {
      const moved = services.use(await Service.start(place, env));
      for (const seconds of [HOUR_S, -HOUR_S, 0, HOUR_S]) {
        setClock(clock, seconds);
        executed += await executeSteps(place, moved, patience);
        await patience.pause(isBrief ? 200 : 3_000 * Math.random());
      }
      const takenAwayMs = await dieWithLongLeases(moved, store, patience);
      if (takenAwayMs !== null) takenOver.push(takenAwayMs);
      setClock(clock, 0);
    }
    const drainedMs = await customers.settle();
    await steady.stop();
    await store.close();

    assert.ok(takenOver.length > 0, "No worker died with leases of the future");
    const slowestMs = Math.max(...takenOver);
    // It has to be seen unchanged for so long, by a worker that looks three times in that time.
    assert.ok(slowestMs < 3 * WORKER.staleThreshold + 2_000, `They were taken away after ${Math.round(slowestMs)} ms`);
    const { runs, acknowledged } = await audit(place.database, place.ledger, customers);
    return {
      outcome: "held",
      told: `the worker whose clock was moved by an hour executed ${executed} steps meanwhile; ` +
        `${takenOver.length} times it died with leases that were to last for an hour, which were taken away after ` +
        `at most ${Math.round(slowestMs)} ms; ${runs} runs completed, none failed, ` +
        `${acknowledged} step results kept, drained in ${Math.round(drainedMs)} ms`,
    };
  },
};

/**
 * Lets a worker die while it holds leases that by the clock of the others last for an hour. Answers after how many
 * milliseconds they were taken away; `null` if it had just let go of them.
 */
async function dieWithLongLeases(worker: Service, store: SqliteStore, patience: Patience): Promise<number | null> {
  const countLong = async () =>
    (await store.getLeases()).filter(({ expiresAt }) => expiresAt > Date.now() + HOUR_MS / 2).length;
  await patience.until(async () => await countLong() > 0, "it was to hold leases of the future");
  await worker.kill();
  const left = await countLong();
  const diedAt = performance.now();
  await patience.until(async () => await countLong() === 0, "leases of the future were to be taken away");
  return left > 0 ? performance.now() - diedAt : null;
}

/** Resolves when a worker has executed some more steps. Answers how many. */
async function executeSteps(place: Place, worker: Service, patience: Patience): Promise<number> {
  const count = () =>
    place.ledger.read().filter(([word, , , , pid]) => word === "start" && pid === `${worker.pid}`).length;
  const before = count();
  await patience.until(() => count() >= before + STEPS, "the worker with the moved clock was to execute steps");
  return count() - before;
}

/** The file must keep its length: processes have it mapped. */
function setClock(path: string, seconds: number): void {
  using file = Deno.openSync(path, { write: true, create: true });
  file.writeSync(new Uint8Array(BigInt64Array.of(BigInt(seconds)).buffer));
}

async function compileShim(folder: string): Promise<{ path: string } | { reason: string }> {
  if (Deno.build.os !== "linux") return { reason: "the clock of a process is moved on Linux only" };
  const path = `${folder}/clock_shim.so`;
  const source = fileURLToPath(new URL("clock_shim.c", import.meta.url));
  try {
    const { success, stderr } = await new Deno.Command("gcc", {
      args: ["-shared", "-fPIC", "-O2", "-o", path, source, "-ldl"],
    }).output();
    return success ? { path } : { reason: `gcc cannot compile: ${new TextDecoder().decode(stderr).split("\n")[0]}` };
  } catch {
    return { reason: "there is no gcc" };
  }
}
