import assert from "node:assert/strict";
import { Chance } from "../support/chance.ts";
import { check, shrink } from "./checker.ts";
import type { Fact } from "./facts.ts";
import { rateModel } from "./rate_model.ts";
import { starts } from "./rates.ts";

const RATE = { limit: 3, period: 400 };

/** A run is claimed: its worker calls the store at one instant, and is answered at another. */
function claim(from: number, to: number, generation = 1): Fact {
  const lease = { of: "rate", run: `run ${from} ${to}`, generation, room: 1, isFirst: generation === 1, slot: null };
  return { is: "claimed", ...lease, from, to, until: to + 1_000 };
}

const RIGHT: Record<string, Fact[]> = {
  "three starts at once, and three more a period later": [
    claim(0, 5),
    claim(0, 5),
    claim(0, 5),
    claim(402, 408),
    claim(402, 408),
    claim(402, 408),
  ],
  "a worker that was suspended before it heard the answer to its claim": [
    claim(0, 2_000),
    claim(410, 415),
    claim(410, 415),
    claim(410, 415),
    claim(1_000, 1_005),
  ],
  "starts that are answered in another order": [
    claim(0, 900),
    claim(10, 20),
    claim(15, 30),
    claim(395, 420),
    claim(430, 440),
  ],
  "a run that resumes is no start": [claim(0, 5), claim(6, 8), claim(9, 11), claim(20, 25, 2), claim(26, 28, 3)],
};

const WRONG: Record<string, Fact[]> = {
  "four starts in a period": [claim(0, 5), claim(10, 15), claim(20, 25), claim(300, 310)],
  "four starts across the border of two periods of a clock": [
    claim(350, 355),
    claim(360, 365),
    claim(410, 415),
    claim(420, 425),
  ],
  "one long claim cannot be before and after": [
    claim(0, 3),
    claim(0, 3),
    claim(0, 600),
    claim(200, 210),
    claim(402, 410),
    claim(402, 410),
    claim(402, 410),
  ],
};

for (const [what, facts] of Object.entries(RIGHT)) {
  Deno.test(`rateModel() accepts: ${what}`, () => {
    assert.equal(check(rateModel(RATE), starts(facts)), "linearizable");
  });
}

for (const [what, facts] of Object.entries(WRONG)) {
  Deno.test(`rateModel() refuses: ${what}`, () => {
    assert.equal(check(rateModel(RATE), starts(facts)), "not linearizable");
  });
}

Deno.test("rateModel() accepts what a rate allows, seen from outside, and refuses one start more", () => {
  for (let seed = 1; seed <= 50; seed++) {
    const chance = new Chance(seed);
    const at: number[] = [];
    for (let no = 0; no < 20; no++) {
      const opensAt = at.length < RATE.limit ? 0 : at.at(-RATE.limit)! + RATE.period;
      at.push(Math.max(opensAt, at.at(-1) ?? 0) + chance.int(chance.happens(0.5) ? 1 : 300));
    }
    const seen = (at: number) => claim(at - chance.int(100), at + chance.int(100));

    assert.equal(check(rateModel(RATE), starts(at.map(seen))), "linearizable", `seed ${seed}`);

    // At the same moment as the last one of a window, which nobody else is near to.
    const full = at.findIndex((_, no) => no + 1 >= RATE.limit && at[no]! - at[no + 1 - RATE.limit]! < 100);
    if (full === -1) continue;
    const wrong = at.map((at) => claim(at - 2, at + 2));
    wrong.push(claim(at[full]! - 3, at[full]! + 3));
    assert.equal(check(rateModel(RATE), starts(wrong)), "not linearizable", `seed ${seed}`);
  }
});

Deno.test("shrink() leaves the starts of the window that has too many", () => {
  const facts = Array.from({ length: 30 }, (_, no) => claim(no * 140, no * 140 + 3));
  facts.push(claim(2_000, 2_003));

  const shrunk = shrink(rateModel(RATE), starts(facts));

  assert.equal(shrunk.length, RATE.limit + 1);
  assert.ok(shrunk.every(({ from, to }) => from > 1_400 && to < 2_600));
});
