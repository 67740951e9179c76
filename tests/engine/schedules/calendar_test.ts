import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { Cron } from "croner";
import { Calendar } from "../../../src/engine/schedules/calendar.ts";

const MINUTE = 60_000;
const DAY = 86_400_000;

/** The slots of a time, as text without what they have in common. */
function slotsBetween(cron: string, timezone: string, from: string, until: string): string[] {
  const calendar = new Calendar(cron, timezone);
  const slots: string[] = [];
  let at = calendar.next(Date.parse(`${from}:00Z`) - 1);
  while (at !== null && at <= Date.parse(`${until}:00Z`)) {
    slots.push(new Date(at).toISOString().replace(":00.000Z", ""));
    at = calendar.next(at);
  }
  return slots;
}

const GOLDEN: [zone: string, what: string, cron: string, from: string, until: string, slots: string[]][] = [
  // Clocks are set forward: 02:30 does not exist on the 29th, and counts at the end of the gap, 03:00.
  ["Europe/Berlin", "a daily time in the gap", "30 2 * * *", "2026-03-28T00:00", "2026-03-30T12:00", [
    "2026-03-28T01:30",
    "2026-03-29T01:00",
    "2026-03-30T00:30",
  ]],
  [
    "Europe/Berlin",
    "two times a day, of which one is in the gap",
    "30 2,4 * * *",
    "2026-03-29T00:00",
    "2026-03-29T12:00",
    [
      "2026-03-29T02:30",
    ],
  ],
  ["Europe/Berlin", "every half hour around the gap", "*/30 * * * *", "2026-03-29T00:30", "2026-03-29T01:30", [
    "2026-03-29T00:30",
    "2026-03-29T01:00",
    "2026-03-29T01:30",
  ]],
  // Clocks are set back: 02:30 comes twice on October 25.
  ["Europe/Berlin", "a daily time that comes twice", "30 2 * * *", "2026-10-24T00:00", "2026-10-26T12:00", [
    "2026-10-24T00:30",
    "2026-10-25T00:30",
    "2026-10-26T01:30",
  ]],
  [
    "Europe/Berlin",
    "two times a day, of which one comes twice",
    "30 2,4 * * *",
    "2026-10-25T00:00",
    "2026-10-25T12:00",
    [
      "2026-10-25T00:30",
      "2026-10-25T01:30",
      "2026-10-25T03:30",
    ],
  ],
  ["America/New_York", "an hourly time in the repeated hour", "15 * * * *", "2026-11-01T05:00", "2026-11-01T07:30", [
    "2026-11-01T05:15",
    "2026-11-01T06:15",
    "2026-11-01T07:15",
  ]],
  ["America/New_York", "a daily time in the gap", "0 2 * * *", "2026-03-07T12:00", "2026-03-09T12:00", [
    "2026-03-08T07:00",
    "2026-03-09T06:00",
  ]],
  ["Australia/Lord_Howe", "a gap of half an hour", "15 2 * * *", "2026-10-03T00:00", "2026-10-05T00:00", [
    "2026-10-03T15:30",
    "2026-10-04T15:15",
  ]],
  ["Australia/Lord_Howe", "a half hour that comes twice", "45 1 * * *", "2026-04-03T20:00", "2026-04-05T20:00", [
    "2026-04-04T14:45",
    "2026-04-05T15:15",
  ]],
  ["America/Sao_Paulo", "midnight in a gap", "0 0 * * *", "2018-11-03T00:00", "2018-11-05T12:00", [
    "2018-11-03T03:00",
    "2018-11-04T03:00",
    "2018-11-05T02:00",
  ]],
  ["Africa/Cairo", "midnight in a gap", "30 0 * * *", "2026-04-23T00:00", "2026-04-25T00:00", [
    "2026-04-23T22:00",
    "2026-04-24T21:30",
  ]],
  ["Europe/London", "midnight before the repeated hour", "30 1 * * *", "2026-10-24T12:00", "2026-10-26T12:00", [
    "2026-10-25T00:30",
    "2026-10-26T01:30",
  ]],
  ["Asia/Kolkata", "a zone of half an hour", "0 9 * * MON", "2026-01-01T00:00", "2026-01-12T12:00", [
    "2026-01-05T03:30",
    "2026-01-12T03:30",
  ]],
  ["America/St_Johns", "a daily time in the gap", "30 2 * * *", "2026-03-07T12:00", "2026-03-09T12:00", [
    "2026-03-08T05:30",
    "2026-03-09T05:00",
  ]],
  ["Pacific/Apia", "a day that the zone has left out", "0 9 * * *", "2011-12-29T00:00", "2011-12-31T23:00", [
    "2011-12-29T19:00",
    "2011-12-30T19:00",
    "2011-12-31T19:00",
  ]],
  ["UTC", "the last day of a month", "0 12 L * *", "2026-01-01T00:00", "2026-03-31T23:00", [
    "2026-01-31T12:00",
    "2026-02-28T12:00",
    "2026-03-31T12:00",
  ]],
];

for (const [zone, what, cron, from, until, slots] of GOLDEN) {
  Deno.test(`Calendar.next() in ${zone}: ${what} (${cron})`, () => {
    assert.deepEqual(slotsBetween(cron, zone, from, until), slots);
  });
}

Deno.test("Calendar reads nicknames, seconds and years", () => {
  const at = Date.UTC(2026, 0, 1, 12, 0, 0, 500);
  const next = (cron: string) => new Date(new Calendar(cron, "UTC").next(at)!).toISOString();

  assert.deepEqual(["@daily", "@HOURLY", "@weekly", "@monthly", "@yearly"].map(next), [
    "2026-01-02T00:00:00.000Z",
    "2026-01-01T13:00:00.000Z",
    "2026-01-04T00:00:00.000Z",
    "2026-02-01T00:00:00.000Z",
    "2027-01-01T00:00:00.000Z",
  ]);
  assert.equal(next("*/20 * * * * *"), "2026-01-01T12:00:20.000Z");
  assert.equal(next(" 0 0  0 1 6 *  2030 "), "2030-06-01T00:00:00.000Z");
});

Deno.test("Calendar.next() returns null after the last slot, and upcoming() fewer than asked for", () => {
  const calendar = new Calendar("0 0 0 1 1 * 2030", "UTC");
  const slot = Date.UTC(2030, 0, 1);

  assert.deepEqual([calendar.next(slot - 1), calendar.next(slot)], [slot, null]);
  assert.deepEqual(calendar.upcoming(0, 5), [slot]);
});

const WRONG: [cron: unknown, timezone: unknown, name: string, message: RegExp][] = [
  ["", "UTC", "RangeError", /^cron must have 5 fields .*, not ""$/],
  ["* * * *", "UTC", "RangeError", /^cron must have 5 fields/],
  ["@never", "UTC", "RangeError", /^cron must have 5 fields/],
  ["2030-01-01T00:00:00Z", "UTC", "RangeError", /^cron must have 5 fields/],
  ["61 * * * *", "UTC", "RangeError", /^cron "61 \* \* \* \*" is not valid: Invalid value for minute: 61$/],
  ["* * * * FOO", "UTC", "RangeError", /^cron ".*" is not valid: /],
  ["0 0 32 * *", "UTC", "RangeError", /^cron ".*" is not valid: Invalid value for day: 32$/],
  ["0 0 0 * *", "UTC", "RangeError", /^cron ".*" is not valid: Invalid value for day: 0$/],
  ["0 0 * 13 *", "UTC", "RangeError", /^cron ".*" is not valid: Invalid value for month: 13$/],
  ["0 24 * * *", "UTC", "RangeError", /^cron ".*" is not valid: Invalid value for hour: 24$/],
  ["0 0 30 2 *", "UTC", "RangeError", /^cron "0 0 30 2 \*" has no slot: no such date exists$/],
  [5, "UTC", "RangeError", /^cron must be a string like "30 2 \* \* \*", not a number$/],
  ["* * * * *", "", "RangeError", /^timezone "" is unknown/],
  [
    "* * * * *",
    "Europe/Nowhere",
    "RangeError",
    /^timezone "Europe\/Nowhere" is unknown: it must be a name like "Europe\/Berlin"/,
  ],
  ["* * * * *", null, "RangeError", /^timezone must be a string like "Europe\/Berlin", not null$/],
];

for (const [cron, timezone, name, message] of WRONG) {
  Deno.test(`Calendar refuses ${JSON.stringify(cron)} in ${JSON.stringify(timezone)}`, () => {
    assert.throws(() => new Calendar(cron as string, timezone as string), { name, message });
  });
}

Deno.test("Calendar.next() refuses an answer that is not later than the slot before", () => {
  const slot = Date.UTC(2030, 0, 1);
  for (const answer of [slot, slot - 1_000]) {
    const calendar = new Calendar("* * * * *", "UTC", { nextRun: () => new Date(answer), previousRuns: () => [] });

    assert.throws(() => calendar.next(slot), /The slot after 2030-01-01T00:00:00.000Z cannot be worked out/);
  }
});

Deno.test("Calendar.missed() finds the slots up to an instant, both ends included", () => {
  const calendar = new Calendar("0 * * * *", "UTC");
  const from = Date.UTC(2030, 0, 1);
  const hour = 60 * MINUTE;

  assert.deepEqual(calendar.missed(from, from, 1), { newest: [from], count: 1 });
  assert.deepEqual(calendar.missed(from, from + 2 * hour - 1, 5), { newest: [from, from + hour], count: 2 });
  assert.deepEqual(calendar.missed(from, from + 2 * hour, 2), { newest: [from + hour, from + 2 * hour], count: 3 });
  assert.deepEqual(calendar.missed(from, from + 99 * hour, 2), {
    newest: [from + 98 * hour, from + 99 * hour],
    count: 100,
  });
});

const COUNTED = [
  ["Europe/Berlin", "*/15 * * * *"],
  ["Europe/Berlin", "30 2 * * *"],
  ["Australia/Lord_Howe", "10,40 1-2 * * *"],
  ["Africa/Casablanca", "0 */2 1,15 * MON"],
  ["America/New_York", "*/20 */7 2 * * SUN"],
  ["Asia/Kolkata", "0 0,12 L * *"],
] as const;

for (const [zone, cron] of COUNTED) {
  Deno.test(`Calendar.missed() counts as many slots as there are: ${cron} in ${zone}`, () => {
    const calendar = new Calendar(cron, zone);
    for (const [start, days] of [["2026-02-20", 60], ["2026-09-30", 45], ["2026-03-28", 3]] as const) {
      const from = calendar.next(Date.parse(start))!;
      const until = from + days * DAY + 12_345_678;
      const all: number[] = [];
      for (let at: number | null = from; at !== null && at <= until; at = calendar.next(at)) all.push(at);

      assert.deepEqual(calendar.missed(from, until, 7), { newest: all.slice(-7), count: all.length });
    }
  });
}

Deno.test("Calendar.missed() finds the newest hundred of a year of seconds without looking at each", () => {
  let calls = 0;
  const cron = new Cron("* * * * * *", { timezone: "Europe/Berlin", paused: true });
  const calendar = new Calendar("* * * * * *", "Europe/Berlin", {
    nextRun: (after) => {
      calls += 1;
      return cron.nextRun(after);
    },
    previousRuns: (count, reference) => cron.previousRuns(count, reference),
  });
  const from = Date.UTC(2026, 0, 1);
  const until = from + 365 * DAY;

  const { newest, count } = calendar.missed(from, until, 100);

  assert.equal(count, 365 * 86_400 + 1);
  assert.deepEqual(newest, Array.from({ length: 100 }, (_, no) => until - (99 - no) * 1_000));
  assert.ok(calls < 50, `${calls} calls`);
});

Deno.test("Calendar does not depend on the time zone of the process", async () => {
  const program = `
    import { Calendar } from "${new URL("../../../src/engine/schedules/calendar.ts", import.meta.url)}";
    const found = [];
    for (const zone of ["Europe/Berlin", "America/New_York", "UTC", "Australia/Lord_Howe"]) {
      for (const cron of ["30 2 * * *", "15 * * * *"]) {
        const calendar = new Calendar(cron, zone);
        for (const start of ["2026-03-07", "2026-03-28", "2026-04-04", "2026-10-03", "2026-10-24", "2026-10-31"]) {
          found.push(...calendar.upcoming(Date.parse(start), 40));
          const { newest, count } = calendar.missed(calendar.next(Date.parse(start)), Date.parse(start) + 3e8, 3);
          found.push(...newest, count);
        }
      }
    }
    console.log(JSON.stringify(found));
  `;
  const config = fileURLToPath(new URL("../../../deno.json", import.meta.url));
  const outputs = await Promise.all(
    ["UTC", "America/New_York", "Australia/Lord_Howe", "Europe/Berlin"].map(async (TZ) => {
      const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
        args: ["eval", "--no-check", "--config", config, program],
        env: { TZ, NO_COLOR: "1" },
      }).output();
      assert.ok(success, new TextDecoder().decode(stderr));
      return new TextDecoder().decode(stdout);
    }),
  );

  for (const output of outputs) assert.equal(output, outputs[0]);
  assert.ok(JSON.parse(outputs[0]!).length > 1_000);
});
