import assert from "node:assert/strict";
import { check, type Operation } from "./checker.ts";
import { PAUSE_MODEL, type PauseAsk, type PauseTold } from "./pause_model.ts";

type Line = [from: number, to: number, ask: PauseAsk, told?: PauseTold | null];

const pause = (note: string): PauseAsk => ({ is: "pause", note });
const resume: PauseAsk = { is: "resume" };
const read: PauseAsk = { is: "read" };
const claim = (run: string): PauseAsk => ({ is: "claim", run, generation: 1 });

function history(lines: readonly Line[]): Operation<PauseAsk, PauseTold>[] {
  return lines.map(([from, to, ask, told = {}]) => ({ from, to: told === null ? Infinity : to, ask, told }));
}

const RIGHT: Record<string, Line[]> = {
  "a run that is claimed while the pause is not answered": [
    [0, 10, pause("one")],
    [5, 12, claim("a")],
  ],
  "a claim that began before the pause, and whose process was suspended before its answer": [
    [0, 2_000, claim("a")],
    [10, 20, pause("one")],
  ],
  "a resume that was told nothing, and a run that is claimed long after it": [
    [0, 1, pause("one")],
    [2, 3, resume, null],
    [900, 910, claim("a")],
  ],
  "a second pause while the first counts, and its note": [
    [0, 1, pause("one")],
    [2, 3, pause("two")],
    [4, 5, read, { note: "one" }],
    [6, 7, resume],
    [8, 9, read, { note: null }],
  ],
  "a pause that was told nothing, and is seen later": [
    [0, 1, pause("one"), null],
    [2, 3, claim("a")],
    [4, 5, read, { note: "one" }],
  ],
};

const WRONG: Record<string, Line[]> = {
  "a run that is claimed after an answered pause": [
    [0, 1, pause("one")],
    [2, 3, claim("a")],
    [4, 5, resume],
  ],
  "a run that is claimed between a pause that was seen and its resume": [
    [0, 1, pause("one"), null],
    [2, 3, read, { note: "one" }],
    [4, 5, claim("a")],
    [6, 7, resume],
  ],
  "a resume that is forgotten": [
    [0, 1, pause("one")],
    [2, 3, resume],
    [4, 5, read, { note: "one" }],
  ],
  "a second pause that replaces the first": [
    [0, 1, pause("one")],
    [2, 3, pause("two")],
    [4, 5, read, { note: "two" }],
  ],
  "a pause that ends without a resume": [
    [0, 1, pause("one")],
    [2, 3, read, { note: null }],
  ],
};

for (const [what, lines] of Object.entries(RIGHT)) {
  Deno.test(`PAUSE_MODEL accepts: ${what}`, () => {
    assert.equal(check(PAUSE_MODEL, history(lines)), "linearizable");
  });
}

for (const [what, lines] of Object.entries(WRONG)) {
  Deno.test(`PAUSE_MODEL refuses: ${what}`, () => {
    assert.equal(check(PAUSE_MODEL, history(lines)), "not linearizable");
  });
}
