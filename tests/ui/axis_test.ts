import assert from "node:assert/strict";
import { duration } from "../../src/ui/app/core/format.js";
import { makeAxis } from "../../src/ui/app/run/axis.js";

const SECOND = 1_000;
const [MINUTE, HOUR] = [60 * SECOND, 3_600 * SECOND];

/** The words of the axis of a run that is executed from 0 on. */
const wordsOf = (to: number, busy = [{ from: 0, to }]) =>
  makeAxis(busy, 0, to, true, 700).ticks.map(({ words }) => words);

Deno.test("the axis has steps that a clock has", () => {
  assert.deepEqual(wordsOf(60 * SECOND), ["", "+15 s", "+30 s", "+45 s"]);
  assert.deepEqual(wordsOf(4 * MINUTE), ["", "+1 min", "+2 min", "+3 min"]);
  assert.deepEqual(wordsOf(20 * HOUR), ["", "+6 h", "+12 h", "+18 h"]);
  assert.deepEqual(wordsOf(800), ["", "+200 ms", "+400 ms", "+600 ms"]);
});

Deno.test("the axis says no words twice, also after a long gap", () => {
  const begin = 59 * MINUTE + 55 * SECOND;
  const words = wordsOf(begin + 10 * SECOND, [{ from: 0, to: 2 * SECOND }, { from: begin, to: begin + 10 * SECOND }]);

  assert.equal(new Set(words).size, words.length);
  assert.ok(words.includes("+1 h"), words.join());
  assert.ok(words.every((each) => each === "" || /^\+(1 h|1 h \d s|\d+ s|59 min \d+ s)$/.test(each)), words.join());
});

Deno.test("duration() says no minute before one is full", () => {
  assert.deepEqual([59_400, 59_900, 61_000, 3_599_900].map(duration), ["59 s", "1 min", "1 min 1 s", "1 h"]);
});
