import assert from "node:assert/strict";
import { ValidationError } from "../../src/model/error.ts";
import { readInstant } from "../../src/values/instant.ts";

Deno.test("readInstant() reads dates, and ISO 8601 with a time zone", () => {
  const instants = [
    new Date(5),
    "2026-11-01T08:00:00Z",
    "2026-11-01T08:00:00.250Z",
    "2026-11-01T08:00+01:00",
    "2026-11-01",
    "2024-02-29",
    "9999-12-31T23:59:59.999Z",
  ];

  const read = instants.map((value) => new Date(readInstant(value, "startAt")).toISOString());

  assert.deepEqual(read, [
    "1970-01-01T00:00:00.005Z",
    "2026-11-01T08:00:00.000Z",
    "2026-11-01T08:00:00.250Z",
    "2026-11-01T07:00:00.000Z",
    "2026-11-01T00:00:00.000Z",
    "2024-02-29T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z",
  ]);
});

Deno.test("readInstant() refuses what is no instant, or could be read in two ways", () => {
  const wild = [
    "2026-11-01T08:00:00", // without a time zone: it would depend on that of the process
    "2026-02-30",
    "2026-13-01",
    "2026-11-01T25:00:00Z",
    "2026-11-01 08:00:00Z",
    "11/01/2026",
    "tomorrow",
    "",
    "+010000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999-01:00",
    new Date(NaN),
    new Date(8.64e15),
    0,
    null,
    undefined,
    {},
  ];

  for (const value of wild) {
    assert.throws(() => readInstant(value, "startAt"), (error) => {
      assert.ok(error instanceof ValidationError, String(value));
      assert.match(error.message, /^startAt must be a date of the years 0000 to 9999 in ISO 8601/);
      return true;
    });
  }
});
