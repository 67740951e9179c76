import assert from "node:assert/strict";
import { Child } from "../../processes/child.ts";
import { allEnded } from "../all_ended.ts";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { audit } from "./audit.ts";
import { Customers } from "./customers.ts";
import type { Patience } from "./patience.ts";
import { Place } from "./place.ts";
import { Service, type StartFailure } from "./service.ts";

const LOCKS = ["a write transaction left open", "an exclusive transaction"];
const ALONE = "the file for itself alone"; // which can be had only while no other process has it open
const SNAPSHOT = "a reader that holds a snapshot";
const PROGRAM = new URL("foreign_tool.ts", import.meta.url).href;

// SQLite writes its log from the beginning again once it has 1,000 pages and nobody reads what is in it.
const LOG_BYTES = 1_000 * 4_152;

/** Another tool holds a lock on the file: writes wait or are refused, and nothing else is held up. */
export const foreignLock: Scenario = {
  name: "a foreign tool locks the file",
  async run({ isBrief, patience }): Promise<ScenarioResult> {
    const times = isBrief ? { lookMs: 800, holdMs: 1_800 } : { lookMs: 10_000, holdMs: 60_000 };
    await using place = await Place.make();
    await using services = new AsyncDisposableStack();
    const service = services.use(await Service.start(place));
    await using tool = new Child({ file: PROGRAM, isDetached: true }, place.database);
    await using customers = new Customers(service, patience);
    await customers.carryOut(10);
    const scene: Scene = { place, service, tool, customers, patience, times, isBrief };

    const idle = await look(scene, times.lookMs);
    const told: string[] = [];
    for (const lock of LOCKS) told.push(await lockWrites(lock, scene, idle));
    told.push(await holdSnapshot(scene, idle));
    const drainedMs = await customers.settle();
    await service.stop();
    told.push(await startBeside(scene, services));

    const { runs, acknowledged } = await audit(place.database, place.ledger, customers);
    told.push(
      `without a lock: longest block ${Math.round(idle.longestBlockMs)} ms`,
      `${runs} runs completed, none failed, ${acknowledged} step results kept, drained in ${Math.round(drainedMs)} ms`,
    );
    return { outcome: "held", told: told.join("; ") };
  },
};

interface Scene {
  place: Place;
  service: Service;
  tool: Child;
  customers: Customers;
  patience: Patience;
  /** How long things last, in milliseconds. */
  times: { lookMs: number; holdMs: number };
  isBrief: boolean;
}

/** No write is carried out under a lock, and reads go on. */
async function lockWrites(lock: string, scene: Scene, idle: Look): Promise<string> {
  const { tool, customers, times: { holdMs }, isBrief } = scene;
  await hold(tool, lock);
  const before = { ...customers.counts };
  const locked = await look(scene, holdMs);
  const carriedOut = customers.counts.carriedOut - before.carriedOut;
  const refused = customers.counts.refused - before.refused;
  await release(tool);
  const resumedAfter = await customers.carryOut(10);

  // What had its lock already when the tool asked for it may still be answered.
  assert.ok(carriedOut <= 10, `${carriedOut} calls were carried out: ${lock} was no lock`);
  // A write waits for ten seconds: a short lock is not noticed, a long one is told to the client.
  assert.equal(refused > 0, !isBrief, `${refused} writes were refused in ${holdMs} ms`);
  assert.equal(customers.counts.refusedReads, 0, "Reads were to go on");
  assertFree(locked, idle, lock);
  return `${lock}: ${locked.reads} reads in ${holdMs / 1_000} s (slowest ${Math.round(locked.longestReadMs)} ms), ` +
    `${refused} writes refused, 10 carried out ${Math.round(resumedAfter)} ms after it, ` +
    `longest block ${Math.round(locked.longestBlockMs)} ms`;
}

/** While a reader holds a snapshot the log grows; afterwards it is used again from its beginning. */
async function holdSnapshot(scene: Scene, idle: Look): Promise<string> {
  const { place, service, tool, customers, patience, times } = scene;
  await hold(tool, SNAPSHOT);
  const logBefore = logBytes(place);
  const [read] = await allEnded([look(scene, times.holdMs), customers.carryOut(20)]);
  // Not at once, if it had been written from the beginning again a moment ago.
  await patience.until(() => logBytes(place) > logBefore, "the log was to grow while it could not be emptied");
  const logHeld = logBytes(place);
  await release(tool);
  const after = await look(scene, times.holdMs);
  const logAfter = logBytes(place);

  assertFree(read, idle, SNAPSHOT);
  assert.ok(
    logAfter <= Math.max(logHeld * 1.1, 2 * LOG_BYTES),
    `The log was to be used again: it had ${logHeld} bytes, and later ${logAfter}`,
  );
  await patience.until(async () => (await service.facts()).renewals > 0, "leases were to be renewed at the end");
  return `${SNAPSHOT}: log ${kilobytes(logBefore)}, ${kilobytes(logHeld)} when it let go, ${kilobytes(logAfter)} ` +
    `later, longest block ${Math.round(read.longestBlockMs)} ms, and ${Math.round(after.longestBlockMs)} ms after it`;
}

/** A process starts while the tool has the file: it waits for a while, and then says why it does not start. */
async function startBeside({ place, tool, patience, times }: Scene, services: AsyncDisposableStack): Promise<string> {
  await hold(tool, ALONE);
  const [{ first, ms }] = await allEnded([
    startTimed(place, services),
    patience.pause(times.holdMs).finally(() => release(tool)),
  ]);
  if (first instanceof Service) {
    assert.ok(ms >= times.holdMs, `It came to serve after ${ms} ms: ${ALONE} was no lock`);
    assert.equal((await first.stop()).code, 0);
    return `${ALONE}: a process that was started meanwhile served after ${ms} ms`;
  }
  assert.deepEqual([first.code, first.exitCode], ["unavailable", 1], first.told);
  assert.match(first.told, /locked/);
  const second = services.use(await Service.start(place));
  assert.equal((await second.stop()).code, 0);
  return `${ALONE}: a process that was started meanwhile ended after ${ms} ms with "${first.told}"`;
}

async function startTimed(
  place: Place,
  services: AsyncDisposableStack,
): Promise<{ first: Service | StartFailure; ms: number }> {
  const since = performance.now();
  const first = await Service.tryToStart(place);
  if (first instanceof Service) services.use(first);
  return { first, ms: Math.round(performance.now() - since) };
}

async function hold(tool: Child, how: string): Promise<void> {
  await tool.tell(how);
  await tool.hear("holding");
}

async function release(tool: Child): Promise<void> {
  await tool.tell("release");
  await tool.hear("released");
}

interface Look {
  ms: number;
  reads: number;
  longestReadMs: number;
  longestBlockMs: number;
}

/** What a while is like. */
async function look({ service, customers, patience }: Scene, ms: number): Promise<Look> {
  await service.facts();
  customers.longestReadMs = 0;
  const { reads } = customers.counts;
  await patience.pause(ms);
  const { longestBlockMs } = await service.facts();
  return { ms, reads: customers.counts.reads - reads, longestReadMs: customers.longestReadMs, longestBlockMs };
}

/**
 * The event loop was as free as without a lock, apart from what else the machine does: a wait inside SQLite would last
 * for seconds, or come back with each of hundreds of tries and leave hardly any time for reads.
 */
function assertFree(locked: Look, idle: Look, lock: string): void {
  const told = `${lock} held up the event loop: ${JSON.stringify({ locked, idle })}`;
  assert.ok(locked.longestBlockMs <= 1_000 + 2 * idle.longestBlockMs, told);
  assert.ok(locked.reads / locked.ms >= idle.reads / idle.ms / 10, told);
}

function logBytes(place: Place): number {
  return Deno.statSync(`${place.database}-wal`).size;
}

function kilobytes(bytes: number): string {
  return `${Math.round(bytes / 1_000)} kB`;
}
