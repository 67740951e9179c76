import type { StoredOptions } from "../../src/engine/schedules/schedule_options.ts";
import { isoTime } from "../../src/values/iso_time.ts";
import type { Firing, ScheduleRecord } from "../../src/store/schedule_record.ts";
import type { Facts, RunFacts } from "./facts.ts";

// A slot that is found later is skipped by those that catch up none; clocks that differ by less count as the same.
const LATE_MS = 60_000;
const MAX_CAUGHT_UP = 100;
// A slot that is fired so late has passed while nobody looked.
const MISSED_MS = 1_500;

/** The schedules, as the committed history has them. */
export class ScheduleFacts {
  readonly #records = new Map<string, ScheduleRecord>();
  /** The run of each slot that was fired, by schedule and slot. */
  readonly #fired = new Map<string, RunFacts>();

  /** All that exist. */
  get records(): readonly ScheduleRecord[] {
    return [...this.#records.values()];
  }

  /** Whether there is a schedule of this name. */
  has(name: string): boolean {
    return this.#records.has(name);
  }

  /** A schedule was deleted. */
  delete(name: string): void {
    this.#records.delete(name);
  }

  /** A schedule was added or changed, or was not because it had changed meanwhile. */
  set(
    facts: Facts,
    schedule: Omit<ScheduleRecord, "version">,
    version: number | null,
    answer: ScheduleRecord | null,
    wallNow: number,
  ): void {
    const { name, nextAt } = schedule;
    const known = this.#records.get(name) ?? null;
    const isCurrent = (known?.version ?? null) === version;
    facts.expect(
      (answer !== null) === isCurrent,
      "F6",
      () => `${name} has version ${known?.version}, and a change of ${version} was answered ${JSON.stringify(answer)}`,
    );
    if (answer === null) return facts.notice("a change of a schedule was too late");
    const isRight = nextAt !== null && nextAt % stepOf(answer) === 0 &&
      (facts.jumps > 0 || nextAt <= after(answer, wallNow));
    facts.expect(isRight, "F6", () => `the next slot of ${name} is said to be ${isoTime(nextAt)}`);
    if (known !== null) this.#checkMoved(facts, known, answer, wallNow);
    if (known?.pausedAt != null && answer.pausedAt === null) facts.notice("a schedule was paused and resumed");
    if (known?.declared != null && known.declared !== answer.declared) facts.notice("code declared another schedule");
    this.#keep(facts, answer, { ...schedule, version: known === null ? answer.version : known.version + 1 });
  }

  /** A slot that is due stays due, unless the schedule was paused, has another pattern, or the clock was set back. */
  #checkMoved(facts: Facts, known: ScheduleRecord, changed: ScheduleRecord, wallNow: number): void {
    if (changed.nextAt === known.nextAt) return;
    const isFree = known.pausedAt !== null || stepOf(known) !== stepOf(changed);
    const isBack = facts.jumps > 0 && known.nextAt! > wallNow + LATE_MS;
    if (isBack) facts.notice("the next slot was worked out again when the clock was set back");
    facts.expect(
      isFree || facts.jumps > 0,
      "F6",
      () => `the next slot of ${known.name} moved from ${isoTime(known.nextAt)} to ${isoTime(changed.nextAt)}`,
    );
  }

  /**
   * A slot is about to be fired or skipped.
   *
   * @param run The run of it, as the answer says; `null`: none.
   * @param answer The schedule afterwards; `null`: it had changed meanwhile.
   */
  fire(
    facts: Facts,
    { schedule: { name, version }, next, run: asked, skipsOverlap, skipped }: Firing,
    answer: ScheduleRecord | null,
    runId: string | null,
    wallNow: number,
  ): void {
    const known = this.#records.get(name);
    const isCurrent = known !== undefined && known.version === version;
    facts.expect(
      (answer !== null) === isCurrent,
      "F6",
      () =>
        `${name} has version ${known?.version}, and a slot of version ${version} was answered ${
          JSON.stringify(answer)
        }`,
    );
    if (answer === null || !isCurrent) return facts.notice("a slot was fired elsewhere first");
    const { catchUp, overlap } = optionsOf(known);
    const step = stepOf(known);
    const slot = next.lastSlotAt!;
    const first = known.nextAt!;
    const tell = () =>
      `${name}, due at ${isoTime(first)}, does at ${isoTime(wallNow)} ${JSON.stringify({ ...next, skipped })}`;
    const isDue = slot >= first && (facts.jumps > 0 || slot <= wallNow);
    const isWhole = slot % step === 0 && skipped === (slot - first) / step && next.nextAt === slot + step;
    facts.expect(isDue && isWhole && known.pausedAt === null, "F6", tell);
    // What is late is judged by the clock when the schedule was read.
    const isLate = facts.jumps > 0 || wallNow - slot > LATE_MS;
    facts.expect(asked !== null || (catchUp === "none" && isLate), "F6", tell);
    const mayLeaveOut = catchUp !== "all" || facts.jumps > 0 || wallNow - slot >= (MAX_CAUGHT_UP - 1) * step;
    facts.expect(skipped === 0 || mayLeaveOut, "F6", tell);
    const rises = known.lastSlotAt === null || slot > known.lastSlotAt || facts.jumps > 0;
    facts.expect(rises, "F6", () => `${name} fires ${isoTime(slot)} after ${isoTime(known.lastSlotAt)}`);
    const isOpen = facts.open().some(({ request }) => request.schedule?.name === name);
    const isFree = asked !== null && !(overlap === "skip" && isOpen);
    facts.expect(
      skipsOverlap === (overlap === "skip") && (runId !== null) === isFree,
      "F6",
      () => `${name} has ${isOpen ? "an open run" : "no open run"}, and its slot ${isoTime(slot)} became ${runId}`,
    );
    if (skipped > 0) facts.notice("a schedule skipped slots that had passed");
    if (asked !== null && runId === null) facts.notice("a schedule skipped a slot because its run had not ended");
    if (asked === null) facts.notice("a schedule skipped a slot that was late");
    if (runId !== null && wallNow - slot > MISSED_MS) facts.notice("a schedule caught a slot up");
    this.#keep(facts, answer, {
      ...known,
      ...next,
      lastRunId: runId ?? known.lastRunId,
      skipped: known.skipped + skipped + (runId === null ? 1 : 0),
      version: known.version + 1,
    });
  }

  /** The run of a slot was added or found. */
  noteRun(facts: Facts, name: string, slot: number, run: RunFacts): void {
    const key = `${name} ${slot}`;
    const before = this.#fired.get(key);
    const { idempotencyKey, schedule, jobName } = run.request;
    // The key of a slot is one of its job, which the schedule may have changed before the clock was set back.
    const isSame = before === undefined || before.isDeleted || before === run || before.request.jobName !== jobName;
    const isNamed = idempotencyKey === `schedule/${name}/${isoTime(slot)}` && schedule?.slotAt === isoTime(slot);
    facts.expect(
      isSame && isNamed,
      "F6",
      () => `${isoTime(slot)} of ${name} has the run ${before?.request.id}, and now ${JSON.stringify(run.request)}`,
    );
    this.#fired.set(key, run);
  }

  #keep(facts: Facts, answer: ScheduleRecord, expected: ScheduleRecord): void {
    const isSame = Object.entries(expected).every(([name, value]) => answer[name as keyof ScheduleRecord] === value);
    facts.expect(isSame, "F6", () => `a schedule became ${JSON.stringify(answer)}, not ${JSON.stringify(expected)}`);
    this.#records.set(answer.name, answer);
  }
}

function optionsOf({ options }: ScheduleRecord): StoredOptions {
  return JSON.parse(options);
}

/** How far the slots are from each other: all patterns of a simulation are like "every 2 seconds" or "minutes". */
function stepOf(record: ScheduleRecord): number {
  const { cron } = optionsOf(record);
  return (cron.startsWith("0 ") ? 60_000 : 1_000) * Number(/\*\/(\d+) /.exec(cron)![1]);
}

function after(record: ScheduleRecord, at: number): number {
  const step = stepOf(record);
  return (Math.floor(at / step) + 1) * step;
}
