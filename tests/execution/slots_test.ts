import assert from "node:assert/strict";
import { type Slot, Slots } from "../../src/execution/slots.ts";
import { FakeHost } from "../support/fake_host.ts";

const POLLING_MS = 1_000;

function someSlots(concurrency = 10) {
  const host = new FakeHost();
  const calls = { onFree: 0 };
  const slots = new Slots({ concurrency, pollingInterval: POLLING_MS }, host, () => void calls.onFree++);
  const begin = (count: number, { records = 1, isTrial = false } = {}) =>
    Array.from({ length: count }, () => slots.begin(records, isTrial));
  return { host, slots, calls, begin };
}

/** Takes held runs as one claim that finds as many as it may take. */
function tryHeld(slots: Slots): Slot[] {
  const limit = slots.countTrials(false);
  slots.noteTrials(limit, limit);
  return Array.from({ length: limit }, () => slots.begin(1, true));
}

Deno.test("Slots.free counts executions until their jobs have returned, and ends that cannot be saved after", () => {
  const { slots, begin } = someSlots(2);
  const free = [slots.free];

  const executions = begin(2);
  free.push(slots.free);
  for (const slot of executions) slot.noteEnding();
  free.push(slots.free);
  for (const slot of begin(2)) slot.noteEnding();
  free.push(slots.free);
  for (const slot of executions) slot.end(true);
  free.push(slots.free);

  assert.deepEqual(free, [2, 0, 2, 0, 2]);
});

Deno.test("Slot.noteEnding() of an execution that is over takes no place of an end that cannot be saved", () => {
  const { slots, begin } = someSlots(1);
  const [superseded] = begin(1);
  superseded!.end(null);
  for (const slot of begin(1)) slot.noteEnding();

  superseded!.noteEnding();

  assert.equal(slots.free, 1);
});

Deno.test("Slot.giveUp() frees a slot, and take() waits for one before new claims", async () => {
  const { slots, calls, begin } = someSlots(2);
  const [first, second] = begin(2) as [Slot, Slot];
  const taken: string[] = [];

  first.giveUp();
  second.giveUp();
  const [third] = begin(1);
  const waits = [first.take().then(() => taken.push("first")), second.take().then(() => taken.push("second"))];
  await waits[0];
  const before = [taken.join(), slots.free, second.isTaken];
  third!.end(true);
  slots.serve();
  await waits[1];

  assert.deepEqual(before, ["first", 0, false]);
  assert.deepEqual([taken.join(), slots.free, slots.busy], ["first,second", 0, 2]);
  assert.equal(calls.onFree, 2);
});

Deno.test("Slot.take() resolves when the execution is over, or the worker stops", async () => {
  const { slots, begin } = someSlots(1);
  const [first] = begin(1);
  first!.giveUp();
  const [second] = begin(1);
  second!.giveUp();
  begin(1);
  const waits = [first!.take(), second!.take()];

  first!.end(null);
  await waits[0];
  const isTaken = [first!.isTaken, second!.isTaken];
  slots.serve(true);
  await waits[1];

  assert.deepEqual(isTaken, [false, false]);
});

Deno.test("Slot.giveUp() keeps the slot if those without one have too many records", () => {
  const { slots, begin } = someSlots(10_000);

  const small = begin(2_000);
  for (const slot of small) slot.giveUp();
  const without = small.filter(({ isTaken }) => !isTaken).length;
  for (const slot of small) slot.end(true);
  const [large] = begin(1, { records: 10_000 });
  large!.giveUp();

  assert.ok(without > 500 && without < 1_000, `${without}`);
  assert.deepEqual([large!.isTaken, slots.free], [true, 9_999]);
});

Deno.test("Slots.countTrials() allows one slot in ten, and at least one", () => {
  const counts = [1, 9, 10, 19, 20, 100].map((concurrency) => someSlots(concurrency).slots.countTrials(false));

  assert.deepEqual(counts, [1, 1, 1, 1, 2, 10]);
});

Deno.test("Slots.countTrials() counts trials until it is known whether the code fits, unless they have no slot", () => {
  const { slots } = someSlots(20);
  const [first, second] = tryHeld(slots) as [Slot, Slot];
  const counts = [slots.countTrials(false)];

  first.noteFit();
  counts.push(slots.countTrials(false));
  second.giveUp();
  counts.push(slots.countTrials(false));

  assert.deepEqual(counts, [0, 1, 2]);
});

Deno.test("Slots.countTrials() allows 20 in a polling interval, if the code fits none", () => {
  const { host, slots } = someSlots();
  const tryAll = () => {
    let tried = 0;
    for (let taken = tryHeld(slots); taken.length > 0; taken = tryHeld(slots)) {
      for (const slot of taken) slot.giveUp();
      tried += taken.length;
    }
    return tried;
  };

  const counts = [tryAll(), tryAll()];
  host.advance(POLLING_MS);
  counts.push(tryAll());

  assert.deepEqual(counts, [20, 0, 20]);
});

Deno.test("Slots.countTrials() allows more once the code has fitted a run, until it does not fit another", () => {
  const { slots, calls } = someSlots();
  for (let tried = 0; tried < 100; tried++) {
    const [slot] = tryHeld(slots) as [Slot];
    slot.noteFit();
    slot.end(true);
  }
  const [slot] = tryHeld(slots) as [Slot];

  slot.end(false);

  assert.deepEqual([slots.countTrials(false), slots.countTrials(true), calls.onFree], [0, 1, 100]);
});

Deno.test("Slots.countTrials() allows none in this interval after a claim that has found no more", () => {
  const { host, slots } = someSlots();

  slots.noteTrials(0, slots.countTrials(false));
  const counts = [slots.countTrials(false)];
  host.advance(POLLING_MS);
  counts.push(slots.countTrials(false));

  assert.deepEqual(counts, [0, 1]);
});

Deno.test("Slots.areTrialsOverdue says that other runs have left no slot for three polling intervals", () => {
  const { host, slots } = someSlots();
  const overdue = [slots.areTrialsOverdue];

  host.advance(3 * POLLING_MS);
  overdue.push(slots.areTrialsOverdue);
  slots.noteTrials(0, 1);
  overdue.push(slots.areTrialsOverdue);

  assert.deepEqual(overdue, [false, true, false]);
});
