import assert from "node:assert/strict";
import { Child } from "../../processes/child.ts";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { audit } from "./audit.ts";
import { Customers } from "./customers.ts";
import type { LoopDelays } from "./loop_meter.ts";
import { Place } from "./place.ts";
import { Service } from "./service.ts";

const LOCKS = ["a write transaction left open", "an exclusive transaction"];
const ALONE = "the file for itself alone"; // which can be had only while no other process has it open
const SNAPSHOT = "a reader that holds a snapshot";
const PROGRAM = new URL("foreign_tool.ts", import.meta.url).href;

// SQLite writes its log from the beginning again once it has 1,000 pages and nobody reads what is in it.
const LOG_BYTES = 1_000 * 4_152;

/** Another tool holds a lock on the file: writes wait or are refused, and nothing else is held up. */
export const foreignLock: Scenario = {
  name: "a foreign tool locks the file",
  async run({ isBrief }): Promise<ScenarioResult> {
    const holdMs = isBrief ? 1_800 : 60_000;
    await using place = await Place.make();
    await using services = new AsyncDisposableStack();
    const service = services.use(await Service.start(place));
    await using tool = new Child(PROGRAM, place.database);
    await using customers = new Customers(service);
    await customers.carryOut(10);
    const told: string[] = [];

    const idle = await look(service, customers, isBrief ? 800 : 10_000);
    for (const lock of LOCKS) {
      await hold(tool, lock);
      const before = { ...customers.counts };
      const locked = await look(service, customers, holdMs);
      const carriedOut = customers.counts.carriedOut - before.carriedOut;
      const refused = customers.counts.refused - before.refused;
      await release(tool);
      const resumedAfter = await customers.carryOut(10);

      // What had its lock already when the tool asked for it may still be answered.
      assert.ok(carriedOut <= 10, `${carriedOut} calls were carried out: ${lock} was no lock`);
      assert.ok(locked.reads > holdMs / 100, `Only ${locked.reads} reads were answered under ${lock}`);
      // A write waits for ten seconds: a short lock is not noticed, a long one is told to the client.
      assert.equal(refused > 0, !isBrief, `${refused} writes were refused in ${holdMs} ms`);
      assert.equal(customers.counts.refusedReads, 0, "Reads were to go on");
      assertFree(locked, idle, lock);
      told.push(
        `${lock}: ${locked.reads} reads in ${holdMs / 1_000} s (slowest ${Math.round(locked.longestReadMs)} ms), ` +
          `${refused} writes refused, 10 carried out ${Math.round(resumedAfter)} ms after it, ` +
          `longest block ${Math.round(locked.longestBlockMs)} ms`,
      );
    }
    await hold(tool, SNAPSHOT);
    const logBefore = logBytes(place);
    const read = await look(service, customers, holdMs);
    const logHeld = logBytes(place);
    await release(tool);
    const after = await look(service, customers, isBrief ? 800 : holdMs);
    const logAfter = logBytes(place);
    const drainedMs = await customers.settle();
    const { renewals } = await service.facts();
    await service.stop();
    told.push(await startBeside(tool, place, services, isBrief ? 800 : holdMs));

    assertFree(read, idle, SNAPSHOT);
    assert.ok(read.carriedOut >= 20, `Only ${read.carriedOut} calls were carried out beside a reader`);
    assert.ok(logHeld > logBefore, `The log was to grow while it could not be emptied: ${logBefore}, ${logHeld}`);
    assert.ok(
      logAfter <= Math.max(logHeld * 1.1, 2 * LOG_BYTES),
      `The log was to be used again: it had ${logHeld} bytes, and later ${logAfter}`,
    );
    assert.ok(renewals > 0, "No lease was renewed at the end");
    const { runs, acknowledged } = await audit(place.database, place.ledger, customers);
    told.push(
      `${SNAPSHOT}: log ${kilobytes(logBefore)}, ${kilobytes(logHeld)} when it let go, ${kilobytes(logAfter)} later, ` +
        `longest block ${Math.round(read.longestBlockMs)} ms, and ${Math.round(after.longestBlockMs)} ms after it`,
      `without a lock: longest block ${Math.round(idle.longestBlockMs)} ms`,
      `${runs} runs completed, none failed, ${acknowledged} step results kept, drained in ${Math.round(drainedMs)} ms`,
    );
    return { outcome: "held", told: told.join("; ") };
  },
};

/** A process starts while the tool has the file: it waits for a while, and then says why it does not start. */
async function startBeside(
  tool: Child,
  place: Place,
  services: AsyncDisposableStack,
  holdMs: number,
): Promise<string> {
  await hold(tool, ALONE);
  const startedAt = performance.now();
  const released = new Promise((resolve) => setTimeout(resolve, holdMs)).then(() => release(tool));
  const first = await Service.tryToStart(place);
  const ms = Math.round(performance.now() - startedAt);
  await released;
  if (first instanceof Service) {
    services.use(first);
    assert.ok(ms >= holdMs, `It came to serve after ${ms} ms: ${ALONE} was no lock`);
    assert.equal((await first.stop()).code, 0);
    return `${ALONE}: a process that was started meanwhile served after ${ms} ms`;
  }
  assert.deepEqual([first.code, first.exitCode], ["unavailable", 1], first.told);
  assert.match(first.told, /locked/);
  const second = services.use(await Service.start(place));
  assert.equal((await second.stop()).code, 0);
  return `${ALONE}: a process that was started meanwhile ended after ${ms} ms with "${first.told}"`;
}

async function hold(tool: Child, how: string): Promise<void> {
  await tool.tell(how);
  await tool.hear("holding");
}

async function release(tool: Child): Promise<void> {
  await tool.tell("release");
  await tool.hear("released");
}

interface Look extends LoopDelays {
  carriedOut: number;
  reads: number;
  longestReadMs: number;
}

/** What a while is like. */
async function look(service: Service, customers: Customers, ms: number): Promise<Look> {
  await service.facts();
  customers.longestReadMs = 0;
  const before = { ...customers.counts };
  await new Promise((resolve) => setTimeout(resolve, ms));
  return {
    ...await service.facts(),
    carriedOut: customers.counts.carriedOut - before.carriedOut,
    reads: customers.counts.reads - before.reads,
    longestReadMs: customers.longestReadMs,
  };
}

/**
 * The event loop was as free as without a lock, apart from what else the machine does: a wait inside SQLite would last
 * for seconds, or come back with each of hundreds of tries.
 */
function assertFree(locked: Look, idle: Look, lock: string): void {
  const told = `${lock} held up the event loop: ${JSON.stringify({ locked, idle })}`;
  assert.ok(locked.longestBlockMs <= 500 + 2 * idle.longestBlockMs, told);
  assert.ok(locked.longBlocks / locked.turns <= 0.05 + 3 * idle.longBlocks / idle.turns, told);
}

function logBytes(place: Place): number {
  return Deno.statSync(`${place.database}-wal`).size;
}

function kilobytes(bytes: number): string {
  return `${Math.round(bytes / 1_000)} kB`;
}
