import assert from "node:assert/strict";
import { allEnded } from "../all_ended.ts";
import type { Scenario, ScenarioOptions, ScenarioResult } from "../scenario.ts";
import { audit } from "./audit.ts";
import { Customers } from "./customers.ts";
import { makeImmutable } from "./immutable_files.ts";
import { Keeper } from "./keeper.ts";
import type { Patience } from "./patience.ts";
import { Place } from "./place.ts";
import { Service } from "./service.ts";
import { Tmpfs } from "./tmpfs.ts";

const REFUSALS = 20; // that customers have to see in each round
const READS = 20;

/** A file becomes read-only under a running process, again and again; and it is read-only when a process starts. */
export const readOnlyFile: Scenario = {
  name: "a read-only file",
  async run(options): Promise<ScenarioResult> {
    const disk = await Tmpfs.mount(32);
    if (!(disk instanceof Tmpfs)) return { outcome: "skipped", reason: disk.reason };
    await using _ = disk;
    const [running, starting] = await allEnded([turnReadOnly(options), startReadOnly(disk, options.patience)]);
    if (typeof running !== "string") return { outcome: "skipped", reason: running.reason };
    return { outcome: "held", told: `${running}; ${starting}` };
  },
};

/**
 * No mount can be made read-only while a file of it is open for writing. A file can be made immutable, though, and then
 * each write to it fails, as on a disk that the system has given up.
 */
async function turnReadOnly({ isBrief, patience }: ScenarioOptions): Promise<string | { reason: string }> {
  const rounds = isBrief ? 2 : 20;
  await using place = await Place.make();
  await using service = await Service.start(place);
  await using customers = new Customers(service, patience);
  await customers.carryOut(10);
  const resumedAfter: number[] = [];
  const completedAfter: number[] = [];
  let workerErrors = 0;

  for (let round = 0; round < rounds; round++) {
    const { reads } = customers.counts;
    const files = await makeImmutable(place.database, `${place.database}-wal`);
    if (!(files instanceof Keeper)) return files;
    {
      await using _ = files;
      await customers.areRefused(REFUSALS);
      await patience.pause(500);
    }
    assert.ok(customers.counts.reads >= reads + READS, `Only ${customers.counts.reads - reads} reads were answered`);
    workerErrors += Object.values((await service.facts()).workerErrors).reduce((sum, n) => sum + n, 0);
    resumedAfter.push(await customers.carryOut(10));
    completedAfter.push(await customers.seeCompleted(10));
  }
  const drainedMs = await customers.settle();
  await service.stop();

  assert.ok(workerErrors > 0, "The worker itself has not met the read-only file");
  assert.equal(customers.counts.refusedReads, 0, "Reads were to go on");
  const { runs, acknowledged } = await audit(place.database, place.ledger, customers);
  return `${rounds} times immutable: ${customers.counts.refused} calls refused with 503, ` +
    `${customers.counts.reads} reads answered, 10 calls carried out at most ` +
    `${Math.round(Math.max(...resumedAfter))} ms after it, the worker had completed as many runs at most ` +
    `${Math.round(Math.max(...completedAfter))} ms later, ${runs} runs completed, none failed, ` +
    `${acknowledged} step results kept, drained in ${Math.round(drainedMs)} ms`;
}

/** A process that starts on a read-only disk says so and ends, however the last one has left the file. */
async function startReadOnly(disk: Tmpfs, patience: Patience): Promise<string> {
  await using place = await Place.make(disk.folder);
  const told = new Set<string>();
  const expectFailure = async () => {
    assert.equal(await disk.remount("ro"), null);
    const failure = await Service.tryToStart(place);
    assert.ok(!(failure instanceof Service), "A service was not to start on a read-only disk");
    assert.deepEqual([failure.code, failure.exitCode], ["unavailable", 1], failure.told);
    assert.match(failure.told, /unable to open database|readonly|read-only/);
    told.add(failure.told.replace(place.database, "..."));
    assert.equal(await disk.remount("rw"), null);
  };

  await expectFailure(); // nothing is there yet
  await using service = await Service.start(place);
  await using customers = new Customers(service, patience);
  await customers.carryOut(10);
  customers.service = null;
  await service.kill();
  await expectFailure(); // there is a log to recover
  await using next = await Service.start(place);
  customers.service = next;
  await customers.settle();
  await next.stop();
  await expectFailure(); // the log is gone

  const { runs } = await audit(place.database, place.ledger, customers);
  return `3 starts on a read-only disk were refused (${[...told].join(" / ")}), afterwards ${runs} runs completed`;
}
