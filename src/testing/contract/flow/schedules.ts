import assert from "node:assert/strict";
import { isoTime } from "../../../values/iso_time.ts";
import type { Store } from "../../../store/store.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { Firing, ScheduleRecord } from "../../../store/schedule_record.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aPause, aRun } from "../fixtures.ts";
import { add, claimOne, complete, park } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of schedules. */
export const scheduleCases = cases;

const SLOT = FAKE_START + 60_000;
const SLOT_TEXT = '{"timezone":"Europe/Berlin"}';

/** A schedule that is new. */
function aSchedule(overrides: Partial<ScheduleRecord> = {}): Omit<ScheduleRecord, "version"> {
  return {
    name: "nightly",
    jobName: "import-csv",
    options: '{"cron":"* * * * *"}',
    declared: null,
    pausedAt: null,
    pausedBy: null,
    nextAt: SLOT,
    lastSlotAt: null,
    lastRunId: null,
    skipped: 0,
    error: null,
    ...overrides,
  };
}

/** Adds a schedule. */
async function addSchedule(store: Store, overrides: Partial<ScheduleRecord> = {}): Promise<ScheduleRecord> {
  const added = await store.setSchedule(aSchedule(overrides), null);
  assert.notEqual(added, null, "there is such a schedule");
  return added!;
}

/** A run of the slot of a schedule. */
function aSlotRun(slot: number, overrides: Partial<NewRun> = {}): NewRun {
  const slotAt = isoTime(slot);
  const schedule = { name: "nightly", slotAt, slot: SLOT_TEXT };
  return aRun({ idempotencyKey: `schedule/nightly/${slotAt}`, schedule, ...overrides });
}

/** Fires the next slot of a schedule, a minute before the one after it. */
function aFiring(schedule: ScheduleRecord, overrides: Partial<Firing> = {}): Firing {
  const slot = schedule.nextAt!;
  return {
    schedule,
    next: { nextAt: slot + 60_000, lastSlotAt: slot, error: null },
    run: aSlotRun(slot),
    skipsOverlap: true,
    skipped: 0,
    ...overrides,
  };
}

async function theSchedule(store: Store): Promise<ScheduleRecord | undefined> {
  return (await store.getSchedules()).schedules[0];
}

timed(
  "setSchedule() adds schedules, and getSchedules() lists them by name with the store's clock",
  async ({ store, host }) => {
    const nothing = await store.getSchedules();
    const night = await store.setSchedule(aSchedule({ declared: "{}", pausedAt: 5, error: "no", skipped: 3 }), null);
    const day = await store.setSchedule(
      aSchedule({ name: "daily", nextAt: null, lastSlotAt: 7, lastRunId: "r" }),
      null,
    );
    host.advance(10);

    const list = await store.getSchedules();

    assert.deepEqual(nothing, { schedules: [], now: FAKE_START });
    assert.deepEqual(list, { schedules: [day, night], now: FAKE_START + 10 });
    const { version: _, ...kept } = night!;
    assert.deepEqual(kept, aSchedule({ declared: "{}", pausedAt: 5, error: "no", skipped: 3 }));
  },
);

timed("getSchedules() of a name reads that schedule alone", async ({ store, host }) => {
  const daily = await store.setSchedule(aSchedule({ name: "daily" }), null);
  await store.setSchedule(aSchedule({ name: "nightly" }), null);
  host.advance(10);

  const one = await store.getSchedules("daily");
  const none = await store.getSchedules("weekly");

  assert.deepEqual(one, { schedules: [daily], now: FAKE_START + 10 });
  assert.deepEqual(none, { schedules: [], now: FAKE_START + 10 });
});

test("setSchedule() replaces a schedule of the version that was read, and raises the version", async ({ store }) => {
  const old = await addSchedule(store);

  const changed = await store.setSchedule(aSchedule({ pausedAt: 9, jobName: "other" }), old.version);

  assert.deepEqual({ ...changed, version: 0 }, { ...aSchedule({ pausedAt: 9, jobName: "other" }), version: 0 });
  assert.ok(changed!.version > old.version);
  assert.deepEqual(await theSchedule(store), changed);
});

test("setSchedule() changes nothing if the schedule has changed, exists already, or does not exist", async ({ store }) => {
  const old = await addSchedule(store);
  const newest = await store.setSchedule(aSchedule({ pausedAt: 9 }), old.version);

  const stale = await store.setSchedule(aSchedule({ jobName: "stale" }), old.version);
  const second = await store.setSchedule(aSchedule({ jobName: "second" }), null);
  const unknown = await store.setSchedule(aSchedule({ name: "unknown" }), old.version);

  assert.deepEqual([stale, second, unknown], [null, null, null]);
  assert.deepEqual((await store.getSchedules()).schedules, [newest]);
});

timed("deleteSchedule() deletes a schedule once, and keeps its runs", async ({ store, host }) => {
  const old = await addSchedule(store);
  const fired = await store.fireSchedule(aFiring(old));

  const answers = [await store.deleteSchedule("nightly"), await store.deleteSchedule("nightly")];

  assert.deepEqual(answers, [true, false]);
  assert.equal(await theSchedule(store), undefined);
  assert.equal((await getRun(store, fired!.run!.run.id))?.scheduleName, "nightly");
  host.advance(5);
  const again = await addSchedule(store);
  assert.equal(await store.fireSchedule(aFiring(old)), null);
  assert.ok(again.version > old.version);
});

test("fireSchedule() adds the run and moves the schedule, in one step", async ({ store }) => {
  const schedule = await addSchedule(store, { error: "no" });
  const run = aSlotRun(SLOT);

  const fired = await store.fireSchedule(aFiring(schedule, { run, skipped: 4 }));

  assert.deepEqual(fired?.schedule, {
    ...aSchedule({ nextAt: SLOT + 60_000, lastSlotAt: SLOT, lastRunId: run.id, skipped: 4 }),
    version: fired!.schedule.version,
  });
  assert.ok(fired!.schedule.version > schedule.version);
  assert.equal(fired!.run!.disposition, "created");
  const { scheduleName, slotAt, idempotencyKey } = (await getRun(store, run.id))!;
  assert.deepEqual([scheduleName, slotAt, idempotencyKey], ["nightly", isoTime(SLOT), run.idempotencyKey]);
  assert.deepEqual(await theSchedule(store), fired!.schedule);
});

test("fireSchedule() does nothing if the schedule has changed or does not exist", async ({ store }) => {
  const schedule = await addSchedule(store);
  await store.fireSchedule(aFiring(schedule));
  const before = await theSchedule(store);

  const lost = await store.fireSchedule(aFiring(schedule));
  const unknown = await store.fireSchedule(aFiring({ ...schedule, name: "unknown" }));

  assert.deepEqual([lost, unknown], [null, null]);
  assert.deepEqual(await theSchedule(store), before);
  assert.equal((await getRuns(store, {})).total, 1);
});

test("fireSchedule() lets one of several calls fire a slot", async ({ store }) => {
  const schedule = await addSchedule(store);

  const answers = await Promise.all([1, 2, 3].map(() => store.fireSchedule(aFiring(schedule))));

  assert.equal(answers.filter((answer) => answer !== null).length, 1);
  assert.equal((await getRuns(store, {})).total, 1);
});

test("fireSchedule() finds the run that it added when it is repeated, also after later changes", async ({ store }) => {
  const schedule = await addSchedule(store);
  const firing = aFiring(schedule);
  const first = await store.fireSchedule(firing);
  const later = await store.setSchedule({ ...first!.schedule, pausedAt: 1 }, first!.schedule.version);

  const again = await store.fireSchedule(firing);

  assert.deepEqual(again, { schedule: later, run: first!.run });
  assert.equal((await getRuns(store, {})).total, 1);
});

test("fireSchedule() finds the run of a slot that was fired before, by its idempotency key", async ({ store }) => {
  const first = await store.fireSchedule(aFiring(await addSchedule(store)));
  const back = await store.setSchedule({ ...first!.schedule, nextAt: SLOT }, first!.schedule.version);

  const again = await store.fireSchedule(aFiring(back!, { skipsOverlap: false }));

  assert.equal(again!.run!.disposition, "idempotent");
  assert.equal(again!.run!.run.id, first!.run!.run.id);
  assert.deepEqual([again!.schedule.nextAt, again!.schedule.lastRunId], [SLOT + 60_000, first!.run!.run.id]);
});

test("fireSchedule() skips a slot without a run, and counts it with the others", async ({ store }) => {
  const fired = await store.fireSchedule(aFiring(await addSchedule(store), { run: null, skipped: 9 }));

  assert.equal(fired?.run, null);
  assert.deepEqual([fired!.schedule.skipped, fired!.schedule.lastSlotAt, fired!.schedule.lastRunId], [10, SLOT, null]);
  assert.equal((await getRuns(store, {})).total, 0);
});

timed("fireSchedule() skips a slot while a run of the schedule has not ended", async ({ store, host }) => {
  const fire = async () => (await store.fireSchedule(aFiring((await theSchedule(store))!)))!;
  await addSchedule(store);
  const first = (await fire()).run!.run;

  const whilePending = await fire();
  const claim = await claimOne(store);
  const whileRunning = await fire();
  await park(store, claim.lease, aPause({ deadline: { at: host.now() + 5 } }));
  const whileWaiting = await fire();
  host.advance(10);
  await complete(store, (await claimOne(store)).lease);
  const afterwards = await fire();

  assert.deepEqual([whilePending.run, whileRunning.run, whileWaiting.run], [null, null, null]);
  assert.deepEqual([whileWaiting.schedule.skipped, whileWaiting.schedule.lastRunId], [3, first.id]);
  assert.equal(afterwards.run!.disposition, "created");
  assert.equal((await fire()).run, null);
});

test("fireSchedule() skips a slot while a run without a slot has not ended, but not for other runs", async ({ store }) => {
  const schedule = await addSchedule(store);
  await add(store, { schedule: { name: "other", slotAt: null } });
  await add(store);
  const first = await store.fireSchedule(aFiring(schedule));
  await store.cancel(first!.run!.run.id, "request", null);
  const { run } = await add(store, { schedule: { name: "nightly", slotAt: null } });

  const second = await store.fireSchedule(aFiring(first!.schedule));

  assert.notEqual(first!.run, null);
  assert.equal(second!.run, null);
  assert.deepEqual([run.scheduleName, run.slotAt], ["nightly", null]);
});

test("fireSchedule() adds a run beside one that has not ended, if overlap is allowed", async ({ store }) => {
  const first = await store.fireSchedule(aFiring(await addSchedule(store), { skipsOverlap: false }));

  const second = await store.fireSchedule(aFiring(first!.schedule, { skipsOverlap: false }));
  const third = await store.fireSchedule(aFiring(second!.schedule));

  assert.equal(second!.run!.disposition, "created");
  assert.equal(third!.run, null);
  await store.cancel(second!.run!.run.id, "request", null);
  assert.equal((await store.fireSchedule(aFiring(third!.schedule)))!.run, null, "the first run has not ended");
});

test("claim() tells the slot of a run, and every read shows its schedule", async ({ store }) => {
  const fired = await store.fireSchedule(aFiring(await addSchedule(store)));
  const { id } = fired!.run!.run;

  const claim = await claimOne(store);

  assert.equal(claim.slotAt, isoTime(SLOT));
  const [text] = await store.readRuns([id], 1);
  const reads = [
    fired!.run!.run,
    (await getRun(store, id))!,
    (await store.getRunState(id))!.run,
    (await getRuns(store, {})).runs[0]!,
    text!,
    (await store.cancel(id, "request", null))!,
    (await getRun(store, id))!,
  ];
  for (const { scheduleName, slotAt } of reads) assert.deepEqual([scheduleName, slotAt], ["nightly", isoTime(SLOT)]);
});

test("claim() and getHistory() return what was stored of the slot, also of retries", async ({ store }) => {
  const fired = await store.fireSchedule(aFiring(await addSchedule(store)));
  const slots: (string | null)[] = [];
  const end = async () => {
    const { run, slot, lease } = await claimOne(store);
    slots.push(slot, (await store.getHistory(run.id))!.slot);
    await complete(store, lease);
    return run.id;
  };

  let id = await end();
  await store.deleteSchedule("nightly");
  for (const from of ["start", "failure"] as const) {
    await add(store, { schedule: { name: "nightly", slotAt: isoTime(SLOT) }, retriggerOf: { runId: id, from } });
    id = await end();
  }

  assert.equal(fired!.run!.disposition, "created");
  assert.deepEqual(slots, Array(6).fill(SLOT_TEXT));
});

test("claim() and getHistory() return no slot of a schedule that was triggered without one", async ({ store }) => {
  await add(store, { schedule: { name: "nightly", slotAt: null } });

  const { run, slot } = await claimOne(store);

  assert.deepEqual([slot, (await store.getHistory(run.id))!.slot], [null, null]);
});

test("fireSchedule() notes with the fact of the trigger which schedule made the run", async ({ store }) => {
  await store.fireSchedule(aFiring(await addSchedule(store)));

  const { rows } = (await store.readJournal(0, 1_000))!;

  const [fact] = rows.flatMap(({ facts }) => facts);
  assert.deepEqual(fact!.slice(1), ["triggered", null, null, { name: "nightly", slotAt: isoTime(SLOT) }]);
});

test("a run that no schedule has made has neither schedule nor slot", async ({ store }) => {
  const { run } = await add(store);

  const claim = await claimOne(store);

  assert.deepEqual([run.scheduleName, run.slotAt, claim.slotAt, claim.slot], [null, null, null, null]);
});
