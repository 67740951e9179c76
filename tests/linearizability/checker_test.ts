import assert from "node:assert/strict";
import { Chance } from "../support/chance.ts";
import { check, type Operation, shrink } from "./checker.ts";
import { type Ask, KEY_MODEL, type Told } from "./key_model.ts";

type Line = [from: number, to: number, ask: Ask, told: Told | null];

function history(...lines: Line[]): Operation<Ask, Told>[] {
  return lines.map(([from, to, ask, told]) => ({ from, to: told === null ? Infinity : to, ask, told }));
}

const trigger = (until: "forever" | "ended" = "forever"): Ask => ({ is: "trigger", until });
const read = (run: string): Ask => ({ is: "read", run });
const signal = (run: string, signal: string): Ask => ({ is: "signal", run, signal });
const created = (run: string): Told => ({ status: 200, run, disposition: "created" });
const idempotent = (run: string): Told => ({ status: 200, run, disposition: "idempotent" });
const phase = (phase: string): Told => ({ status: 200, phase });
const took = (disposition: string): Told => ({ status: 200, disposition });
const status = (status: number): Told => ({ status });

const RIGHT: Record<string, Line[]> = {
  "two triggers at once, one of which makes the run": [
    [0, 10, trigger(), idempotent("a")],
    [1, 9, trigger(), created("a")],
  ],
  "a read that began before a cancel was answered may not see it": [
    [0, 1, trigger(), created("a")],
    [2, 8, { is: "cancel", run: "a" }, status(200)],
    [3, 9, read("a"), phase("waiting")],
  ],
  "a signalled run may still be cancelled, and may complete before": [
    [0, 1, trigger(), created("a")],
    [2, 3, signal("a", "one"), took("accepted")],
    [4, 5, read("a"), phase("pending")],
    [6, 7, { is: "cancel", run: "a" }, status(409)],
    [8, 9, read("a"), phase("completed")],
  ],
  "a trigger that was told nothing has made the run that another is told": [
    [0, 1, trigger(), null],
    [2, 3, trigger(), idempotent("a")],
    [4, 5, read("a"), phase("waiting")],
  ],
  "a key that ends goes to the next run": [
    [0, 1, trigger("ended"), created("a")],
    [2, 3, { is: "cancel", run: "a" }, status(200)],
    [4, 5, trigger("ended"), created("b")],
    [6, 7, trigger(), idempotent("b")],
  ],
  "while a retry is open it counts for the key, and is answered again": [
    [0, 1, trigger(), created("a")],
    [2, 3, { is: "cancel", run: "a" }, status(200)],
    [4, 5, { is: "retrigger", run: "a" }, { status: 200, run: "b" }],
    [6, 7, { is: "retrigger", run: "a" }, { status: 200, run: "b" }],
    [8, 9, trigger("ended"), idempotent("b")],
  ],
};

const WRONG: Record<string, Line[]> = {
  "two runs of one key": [
    [0, 10, trigger(), created("a")],
    [1, 9, trigger(), created("b")],
  ],
  "a run of the key that was never made": [
    [0, 1, trigger(), idempotent("a")],
  ],
  "a cancel that was answered and is forgotten": [
    [0, 1, trigger(), created("a")],
    [2, 3, { is: "cancel", run: "a" }, status(200)],
    [4, 5, read("a"), phase("waiting")],
  ],
  "two signals that are both accepted": [
    [0, 1, trigger(), created("a")],
    [2, 8, signal("a", "one"), took("accepted")],
    [3, 9, signal("a", "two"), took("accepted")],
  ],
  "an accepted signal that is forgotten": [
    [0, 1, trigger(), created("a")],
    [2, 3, signal("a", "one"), took("accepted")],
    [4, 5, signal("a", "one"), took("accepted")],
  ],
  "a run that completes without an answer": [
    [0, 1, trigger(), created("a")],
    [2, 3, read("a"), phase("completed")],
  ],
  "a run that is there after it was deleted": [
    [0, 1, trigger(), created("a")],
    [2, 3, { is: "cancel", run: "a" }, status(200)],
    [4, 5, { is: "delete", run: "a" }, status(200)],
    [6, 7, read("a"), phase("cancelled")],
  ],
  "a run that is not there although it was not deleted": [
    [0, 1, trigger(), created("a")],
    [2, 3, read("a"), status(404)],
  ],
  "a key that a run keeps although it ended": [
    [0, 1, trigger("ended"), created("a")],
    [2, 3, { is: "cancel", run: "a" }, status(200)],
    [4, 5, trigger("ended"), idempotent("a")],
  ],
  "a second retry while the first is open": [
    [0, 1, trigger(), created("a")],
    [2, 3, { is: "cancel", run: "a" }, status(200)],
    [4, 5, { is: "retrigger", run: "a" }, { status: 200, run: "b" }],
    [6, 7, { is: "retrigger", run: "a" }, { status: 200, run: "c" }],
  ],
  "an answer from the past: the read began after the other had ended": [
    [0, 1, trigger(), created("a")],
    [2, 3, { is: "cancel", run: "a" }, status(200)],
    [4, 5, read("a"), phase("cancelled")],
    [6, 7, read("a"), phase("waiting")],
  ],
};

for (const [what, lines] of Object.entries(RIGHT)) {
  Deno.test(`check() finds an order: ${what}`, () => {
    assert.equal(check(KEY_MODEL, history(...lines)), "linearizable");
  });
}

for (const [what, lines] of Object.entries(WRONG)) {
  Deno.test(`check() finds no order: ${what}`, () => {
    assert.equal(check(KEY_MODEL, history(...lines)), "not linearizable");
  });
}

Deno.test("check() finds whatever is made wrong in a history of many clients", () => {
  for (let seed = 1; seed <= 50; seed++) {
    const chance = new Chance(seed);
    const right = aHistory(chance);
    assert.equal(check(KEY_MODEL, right), "linearizable", `seed ${seed}`);

    const wrong = [...right];
    // Long after all others, the run is open again.
    const last = Math.max(...right.map(({ to }) => to === Infinity ? 0 : to));
    wrong.push(...history([last + 1, last + 2, read("a"), phase("waiting")]));

    assert.equal(check(KEY_MODEL, wrong), "not linearizable", `seed ${seed}`);
  }
});

Deno.test("shrink() forgets the answers that a fault does not need", () => {
  const wrong = history(
    [0, 1, trigger(), created("a")],
    [2, 3, read("a"), phase("waiting")],
    [4, 5, signal("a", "one"), took("accepted")],
    [6, 7, read("a"), phase("pending")],
    [8, 9, signal("a", "two"), took("accepted")],
  );

  const kept = shrink(KEY_MODEL, wrong).filter(({ told }) => told !== null).map(({ ask }) => ask);

  assert.deepEqual(kept, [signal("a", "one"), signal("a", "two")]);
});

Deno.test("shrink() leaves only what contradicts, however much else was told", () => {
  for (let seed = 1; seed <= 5; seed++) {
    const right = aHistory(new Chance(seed)).map((one, no) => no === 0 ? { ...one, from: -10 } : one);
    const last = Math.max(...right.map(({ to }) => to === Infinity ? 0 : to));
    const wrong = [...right, ...history([last + 1, last + 2, read("a"), phase("waiting")])];

    const shrunk = shrink(KEY_MODEL, wrong);

    const kept = shrunk.filter(({ told }) => told !== null);
    assert.equal(check(KEY_MODEL, shrunk), "not linearizable", `seed ${seed}`);
    assert.ok(kept.length <= 3, `seed ${seed}: ${kept.length} answers`);
    for (const one of kept) {
      const others = shrunk.map((other) => other === one ? { ...one, told: null, to: Infinity } : other);
      assert.equal(check(KEY_MODEL, others), "linearizable", `seed ${seed}: ${JSON.stringify(one)} is not needed`);
    }
  }
});

/** What several clients are told about a run that is signalled and completes, in intervals that overlap. */
function aHistory(chance: Chance): Operation<Ask, Told>[] {
  const lines: [Ask, Told][] = [[trigger(), created("a")]];
  const before = () => chance.pick<[Ask, Told]>([[trigger(), idempotent("a")], [read("a"), phase("waiting")]]);
  const after = () =>
    chance.pick<[Ask, Told]>([
      [signal("a", "one"), took("duplicate")],
      [signal("a", "two"), status(409)],
      [read("a"), phase("completed")],
    ]);
  for (let no = 0; no < 6; no++) lines.push(before());
  lines.push([signal("a", "one"), took("accepted")], [read("a"), phase("completed")]);
  for (let no = 0; no < 6; no++) lines.push(after());
  // Each happens at its number, and takes some time around it.
  return lines.map(([ask, told], no) => {
    const from = no - chance.between(0, 3);
    const to = no + chance.between(0, 3);
    return chance.happens(0.1) ? { ask, told: null, from, to: Infinity } : { ask, told, from, to };
  });
}
