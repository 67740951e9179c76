import type { Chance } from "../support/chance.ts";
import type { Calm } from "./calm.ts";
import type { CopyThread } from "./copy_thread.ts";
import { drainCopy } from "./drain_copy.ts";
import type { Examiner } from "./examiner.ts";
import type { WorkerPool } from "./worker_pool.ts";
import type { Tally } from "./tally.ts";
import type { Violations } from "./violations.ts";
import { findKnown } from "./journal_of_copy.ts";
import { DAMAGES, damageWal, findWalTail } from "./wal_damage.ts";

/** What a power loss needs. */
export interface PowerLossDeps {
  database: string;
  /** A folder for copies. */
  folder: string;
  leaseMs: number;
  calm: Calm;
  pool: WorkerPool;
  examiner: Examiner;
  copies: CopyThread;
  chance: Chance;
  tally: Tally;
  violations: Violations;
}

/**
 * Looks at what a power loss at this moment would leave behind: all processes are suspended, the files are copied, and
 * the end of the log of each copy is damaged in another way. What was synced cannot really be lost: that even then the
 * rest is consistent is more than is promised.
 *
 * @param number Which power loss it is, for names.
 */
export async function losePower(number: number, deps: PowerLossDeps): Promise<void> {
  const { folder, calm, pool, examiner, copies, chance, tally, violations } = deps;
  const place = `${folder}/power-loss-${number}`;
  await Deno.mkdir(place);
  const expected = await calm.disturb(() =>
    pool.freeze(async () => {
      await copyFiles(deps.database, place);
      return examiner.expected();
    })
  );
  tally.add("power losses");
  const original = `${place}/jobs.db`;
  const wal = await readFile(`${original}-wal`);
  const tail = findWalTail(await readFile(`${original}-shm`), wal.length);
  const damaged: string[] = [];
  for (const damage of DAMAGES) {
    const path = `${place}/${damage.replaceAll(" ", "-")}.db`;
    await Deno.copyFile(original, path);
    await Deno.writeFile(`${path}-wal`, damageWal(wal, tail, damage, chance));
    damaged.push(path);
  }
  await removeFile(`${original}-shm`);
  for (const path of [original, ...damaged]) {
    const problems = await copies.examine(path, path === original ? expected : null);
    if (path !== original) {
      tally.add(tail.from < tail.until ? "damaged copies opened" : "copies opened with nothing to damage");
    }
    for (const problem of problems) violations.add(`${path}: ${problem}`);
  }
  const drained = chance.pick(damaged);
  const lost = examiner.lostCursors(drained);
  const { bodies, problems } = await drainCopy(drained, deps.leaseMs, copies);
  for (const problem of problems) violations.add(`${drained}, drained: ${problem}`);
  // Its journal goes on where it was cut off, so it uses the lost numbers again: an id must not name two places.
  for (const id of findKnown(drained, lost)) violations.add(`${drained}: the id ${id} was lost, and is a place again`);
  tally.add(bodies > 0 ? "damaged copies drained" : "copies opened with nothing to drain");
  if (violations.found.length === 0) await Deno.remove(place, { recursive: true });
}

/** By another program: closing the file would drop the locks of a process that uses it. */
async function copyFiles(database: string, target: string): Promise<void> {
  const { code, stderr } = await new Deno.Command("cp", {
    args: [database, `${database}-wal`, `${database}-shm`, target],
    stdout: "null",
    stderr: "piped",
  }).output();
  // Without a log everything is in the database: the last one who closed it has removed the log.
  const message = new TextDecoder().decode(stderr);
  if (code !== 0 && !message.includes("jobs.db-")) throw new Error(`cp failed: ${message}`);
}

async function readFile(path: string): Promise<Uint8Array> {
  try {
    return await Deno.readFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return new Uint8Array();
    throw error;
  }
}

async function removeFile(path: string): Promise<void> {
  await Deno.remove(path).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
}
