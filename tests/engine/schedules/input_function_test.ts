import assert from "node:assert/strict";
import { z } from "zod";
import { ConflictError } from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { ScheduleSlot } from "../../../src/model/job/step_calls.ts";
import { toSlot } from "../../../src/engine/schedules/calendar.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const DAY = 86_400_000;
const TIMING = { cron: "30 0 * * *", timezone: "Europe/Berlin" };

const report = defineJob({ name: "report", input: z.object({ day: z.string() }), run: (_step, { day }) => day });

forEachStore("a declared schedule makes the input of each run of its slot", async ({ store, host }) => {
  const slots: ScheduleSlot[] = [];
  const input = (slot: ScheduleSlot) => {
    slots.push(slot);
    return { day: slot.localDate };
  };
  const engine = createEngine({
    store,
    host,
    jobs: { report },
    schedules: { nightly: { job: report, input, ...TIMING } },
  });
  await engine.start();
  await engine.stop();
  host.advance(DAY);

  await engine.runUntilIdle();

  const { runs: [run] } = await engine.getRuns();
  assert.deepEqual([run!.slotAt, run!.input], ["2040-01-01T23:30:00.000Z", { day: "2040-01-02" }]);
  assert.deepEqual(slots.at(-1), {
    at: "2040-01-01T23:30:00.000Z",
    timezone: "Europe/Berlin",
    localDate: "2040-01-02",
    previousAt: "2039-12-31T23:30:00.000Z",
  });
  assert.equal((await engine.schedules.get("nightly"))!.input, null);
});

forEachStore("a schedule shows what its function throws, and that its input does not fit", async ({ store, host }) => {
  const broken = () => {
    throw new Error("no such day");
  };
  const schedules = {
    broken: { job: report, input: broken, ...TIMING },
    wrong: { job: report, input: () => ({ day: 1 } as never), ...TIMING },
  };
  const engine = createEngine({ store, host, jobs: { report }, schedules });
  await engine.start();
  await engine.stop();
  host.advance(DAY);

  await engine.runUntilIdle();

  const errors = (await engine.schedules.list()).map(({ error }) => error);
  assert.deepEqual([errors[0], errors[1]!.includes("does not fit its schema")], ["no such day", true]);
});

forEachStore(
  "a schedule is triggered without a slot only by an engine that has its function",
  async ({ store, host }) => {
    const input = ({ at }: ScheduleSlot) => ({ day: at });
    const declaring = createEngine({
      store,
      host,
      jobs: { report },
      schedules: { daily: { job: report, input, ...TIMING } },
    });
    await declaring.start();
    await declaring.stop();
    const other = createEngine({ store, host, jobs: { report } });

    const run = await declaring.schedules.trigger("daily");
    const refused = other.schedules.trigger("daily");

    assert.deepEqual([run.input, run.slotAt], [{ day: new Date(host.now()).toISOString() }, null]);
    await assert.rejects(refused, ConflictError);
    await assert.rejects(
      other.schedules.set("set", { job: report, input: input as never, ...TIMING }),
      /^TypeError: Schedule "set": only schedules of createEngine\(\) have a function as input$/,
    );
  },
);

const SLOTS: [at: string, timezone: string, localDate: string][] = [
  ["2040-01-01T23:30:00Z", "Europe/Berlin", "2040-01-02"],
  ["2040-01-01T23:30:00Z", "UTC", "2040-01-01"],
  ["2040-01-01T03:00:00Z", "America/Los_Angeles", "2039-12-31"],
  ["2040-02-29T12:00:00Z", "Pacific/Kiritimati", "2040-03-01"],
];

for (const [at, timezone, localDate] of SLOTS) {
  Deno.test(`the local date of ${at} in ${timezone} is ${localDate}`, () => {
    assert.equal(toSlot(Date.parse(at), { cron: "0 * * * *", timezone }).localDate, localDate);
  });
}

Deno.test("the first slot of a pattern has none before it", () => {
  const slot = toSlot(Date.UTC(2040, 0, 1), { cron: "0 0 0 1 1 * 2040", timezone: "UTC" });

  assert.equal(slot.previousAt, null);
});
