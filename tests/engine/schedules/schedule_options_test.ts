import assert from "node:assert/strict";
import { checkSchedule, readOptions } from "../../../src/engine/schedules/schedule_options.ts";
import { echo } from "../../support/jobs.ts";

const LIMIT = 1_000;

Deno.test("checkSchedule() fills in the defaults, and its text is what readOptions() reads", () => {
  const { name, options, text } = checkSchedule("s", { job: echo, input: undefined, cron: "@daily" }, LIMIT);

  assert.equal(name, "s");
  assert.deepEqual(options, {
    jobName: "echo",
    cron: "@daily",
    timezone: "UTC",
    catchUp: "last",
    overlap: "skip",
    trigger: {},
  });
  assert.deepEqual(readOptions(text), options);
});

Deno.test("checkSchedule() makes the same text of the same options in another order", () => {
  const one = checkSchedule("s", {
    job: echo,
    input: 1,
    cron: "@daily",
    labels: { a: "b" },
    concurrencyKey: "k",
    timezone: "UTC",
  }, LIMIT);
  const other = checkSchedule("s", {
    concurrencyKey: "k",
    overlap: "skip",
    labels: { a: "b" },
    cron: "@daily",
    job: "echo",
    coalesce: undefined,
    input: 1,
  } as never, LIMIT);

  assert.equal(one.text, other.text);
});

Deno.test("checkSchedule() refuses an input that is too large", () => {
  const input = "x".repeat(LIMIT);

  assert.throws(
    () => checkSchedule("s", { job: echo, input, cron: "@daily" }, LIMIT),
    /^SerializationError: The input of schedule "s" is too large/,
  );
});
