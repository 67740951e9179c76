import assert from "node:assert/strict";
import { cutText, layOutTable, textWidth } from "../../src/cli/output.ts";
import { wantsColors } from "../../src/cli/terminal.ts";
import { readDuration, readSince } from "../../src/cli/read_options.ts";
import { UsageError } from "../../src/cli/command.ts";
import { callCli } from "./call_cli.ts";

Deno.test("textWidth() counts columns, not characters, and cutText() fits a text into them", () => {
  assert.deepEqual(["abc", "日本", "e\u0301", "✕ x"].map(textWidth), [3, 4, 1, 3]);
  assert.deepEqual([cutText("日本語", 5), cutText("abc", 3), cutText("abcd", 3)], ["日本…", "abc", "ab…"]);
});

Deno.test("layOutTable() cuts the widest of the columns that may be cut, and keeps the others", () => {
  const run = { id: "0123456789", job: "a-very-long-name-of-a-job", steps: 7 };

  const lines = layOutTable([run], [
    ["ID", ({ id }) => id],
    ["JOB", ({ job }) => job, "cut"],
    ["N", ({ steps }) => `${steps}`, "right"],
  ], { columns: 30, hasColors: false });

  assert.deepEqual(lines, [
    "ID          JOB              N",
    "0123456789  a-very-long-na…  7",
  ]);
});

Deno.test("readDuration() and readSince() read ages and instants, and nothing else", () => {
  const now = Date.UTC(2026, 0, 2);

  assert.deepEqual(["90s", "15m", "1h30m", "30d", "2w"].map((text) => readDuration(text, "since")), [
    90_000,
    900_000,
    5_400_000,
    2_592_000_000,
    1_209_600_000,
  ]);
  assert.equal(readSince("1d", "since", now), "2026-01-01T00:00:00.000Z");
  assert.equal(readSince("2025-12-31T23:00:00+01:00", "since", now), "2025-12-31T22:00:00.000Z");
  for (const text of ["", "h", "1", "1x", "1h ", "-1h", "2026-02-30"]) {
    assert.throws(() => readSince(text, "since", now), UsageError, text);
  }
});

Deno.test("readDuration() and readSince() refuse a duration that leads before all dates", () => {
  for (const text of ["999999999w", "36526d"]) {
    assert.throws(() => readDuration(text, "older-than"), UsageError, text);
    assert.throws(() => readSince(text, "since", Date.now()), UsageError, text);
  }
});

Deno.test("wantsColors() knows NO_COLOR and terminals without colors", () => {
  const all = [{}, { NO_COLOR: "" }, { NO_COLOR: "1" }, { TERM: "dumb" }, { TERM: "xterm" }];

  assert.deepEqual(all.map(wantsColors), [true, true, false, false, true]);
});

Deno.test("holdfast --version prints the version of the package", async () => {
  const { version } = JSON.parse(await Deno.readTextFile(new URL("../../deno.json", import.meta.url)));

  const { code, lines } = await callCli(["--version"]);

  assert.deepEqual([code, lines], [0, [version]]);
});
