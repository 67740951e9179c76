import assert from "node:assert/strict";
import type { Run, Step } from "../../../mod.ts";
import { findDifference, findMixture, type Said } from "./talk.ts";

/** The first items of an attempt that writes three. */
function said(step: number, attempt: string, count = 3): Said[] {
  return Array.from({ length: count }, (_, no) => ({ step, attempt, no, of: 3 }));
}

Deno.test("findMixture() finds a mixture of attempts, a gap and a repetition, and nothing else", () => {
  const good = [...said(0, "a"), ...said(1, "b", 2)];
  const broken = [
    [...said(0, "a", 2), ...said(0, "b")], // what a failed attempt has left
    [...said(0, "a"), ...said(0, "b")],
    [...said(0, "a", 2), ...said(1, "b")], // the end of a step is missing
    [...said(0, "a"), ...said(0, "a")],
    said(0, "a").toSpliced(1, 1),
    said(1, "b"),
  ];

  assert.equal(findMixture(good), null);
  assert.deepEqual(broken.map((list) => findMixture(list) === null), broken.map(() => false));
});

Deno.test("findDifference() compares a stream with what is recorded", () => {
  const steps = ["a", "b", "c"].map((attempt, no) => ({
    name: `left-${no}`,
    status: "completed",
    output: { attempt, of: 3 },
  })) as unknown as Step[];
  const completed = { status: "completed" } as Run;
  const all = [...said(0, "a"), ...said(1, "b"), ...said(2, "c")];

  assert.equal(findDifference(all, "left", completed, steps), null);
  assert.notEqual(findDifference(all.slice(0, 8), "left", completed, steps), null);
  assert.notEqual(findDifference([...all.slice(0, 6), ...said(2, "d")], "left", completed, steps), null);
  assert.notEqual(findDifference(all, "left", completed, steps.slice(0, 2)), null);
  assert.equal(findDifference(all.slice(0, 7), "left", { status: "failed" } as Run, steps.slice(0, 2)), null);
});
