import type { ClientRecords } from "./client_records.ts";
import type { CopyThread } from "./copy_thread.ts";
import type { Examiner } from "./examiner.ts";
import { withoutDeleted } from "./expected_of.ts";
import type { WorkerPool } from "./worker_pool.ts";
import type { Tally } from "./tally.ts";
import type { Violations } from "./violations.ts";

/** What a backup needs. */
export interface BackUpDeps {
  /** A folder for the copy. */
  folder: string;
  pool: WorkerPool;
  examiner: Examiner;
  records: ClientRecords;
  copies: CopyThread;
  tally: Tally;
  violations: Violations;
  /** How long the slowest backup took, in milliseconds. */
  longest: { backupMs: number };
}

/**
 * Lets a worker back the database up while it and the others go on, and examines the copy.
 *
 * @param number Which backup it is, for names.
 */
export async function backUp(number: number, deps: BackUpDeps): Promise<void> {
  const { folder, pool, examiner, records, copies, tally, violations, longest } = deps;
  const member = pool.members.find(({ isStopped }) => !isStopped);
  if (member === undefined) return;
  const path = `${folder}/backup-${number}.db`;
  const expected = examiner.expected();
  // A worker lives for a second only, which is little for a backup while the others write.
  member.isSpared = true;
  const since = performance.now();
  try {
    await member.child.tell(`backup ${path}`);
    const { error } = await member.child.hear("backed up");
    if (error !== null) return violations.add(`a backup failed: ${error}`);
  } catch (error) {
    // Nobody ends a worker that is spared, so it should have done it: perhaps the others did not let it come to an end.
    return violations.add(`a backup was not made: ${error instanceof Error ? error.message : error}`);
  } finally {
    member.isSpared = false;
  }
  longest.backupMs = Math.max(longest.backupMs, performance.now() - since);
  const problems = await copies.examine(path, withoutDeleted(expected, records));
  for (const problem of problems) violations.add(`${path}: ${problem}`);
  tally.add("backups");
  if (problems.length === 0) await Deno.remove(path);
}
