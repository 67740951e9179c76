import assert from "node:assert/strict";
import { check, type Operation } from "./checker.ts";
import type { Fact } from "./facts.ts";
import { type Done, SLOT_MODEL, type SlotAsk } from "./slot_model.ts";
import { fires } from "./slots.ts";

type Line = [from: number, to: number, ask: "pause" | "resume"];

function history(lines: readonly Line[]): Operation<SlotAsk, Done>[] {
  return lines.map(([from, to, is]) => ({
    ask: is === "pause" ? { is } : { is, from, to },
    told: to === Infinity ? null : "done",
    from,
    to,
  }));
}

/** The run of a slot is claimed, some time after it was made. */
function claimed(slot: number, run: string, to = slot + 20, generation = 1): Fact {
  const lease = { of: "tick", run, generation, room: 1, isFirst: generation === 1 };
  return { is: "claimed", ...lease, from: to - 10, to, until: to + 1_000, slot };
}

const RIGHT: Record<string, [lines: Line[], claims: Fact[]]> = {
  "slots that are claimed in another order": [[], [claimed(1_000, "a", 3_000), claimed(2_000, "b")]],
  "the run of a slot is claimed again after its worker was killed": [
    [],
    [claimed(1_000, "a"), claimed(1_000, "a", 2_100, 2), claimed(2_000, "b")],
  ],
  "a slot that was fired before the pause, and whose run is claimed after it": [
    [[1_100, 1_110, "pause"]],
    [claimed(1_000, "a", 5_000)],
  ],
  "the slots of a pause have no runs": [
    [[1_100, 1_110, "pause"], [4_500, 4_510, "resume"]],
    [claimed(1_000, "a"), claimed(5_000, "b"), claimed(6_000, "c")],
  ],
  "a resume that was told nothing, at some time": [
    [[1_100, 1_110, "pause"], [1_200, Infinity, "resume"]],
    [claimed(1_000, "a"), claimed(9_000, "b")],
  ],
};

const WRONG: Record<string, [lines: Line[], claims: Fact[]]> = {
  "two runs of one slot": [[], [claimed(1_000, "a"), claimed(1_000, "b")]],
  "a slot without a run": [[], [claimed(1_000, "a"), claimed(3_000, "b")]],
  "a run before its slot": [[], [claimed(1_000, "a", 900)]],
  "a slot that is fired after an answered pause": [[[1_100, 1_110, "pause"]], [
    claimed(1_000, "a"),
    claimed(2_000, "b"),
  ]],
  "a slot of the pause that is caught up with": [
    [[1_100, 1_110, "pause"], [4_500, 4_510, "resume"]],
    [claimed(1_000, "a"), claimed(3_000, "b", 4_600), claimed(4_000, "c", 4_610)],
  ],
  "a slot that is left out after an answered resume": [
    [[1_100, 1_110, "pause"], [4_500, 4_510, "resume"]],
    [claimed(1_000, "a"), claimed(6_000, "b")],
  ],
};

for (const [what, [lines, claims]] of Object.entries(RIGHT)) {
  Deno.test(`SLOT_MODEL accepts: ${what}`, () => {
    assert.equal(check(SLOT_MODEL, [...history(lines), ...fires(claims, 0)]), "linearizable");
  });
}

for (const [what, [lines, claims]] of Object.entries(WRONG)) {
  Deno.test(`SLOT_MODEL refuses: ${what}`, () => {
    assert.equal(check(SLOT_MODEL, [...history(lines), ...fires(claims, 0)]), "not linearizable");
  });
}
