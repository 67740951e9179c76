import assert from "node:assert/strict";
import { ResultOrder } from "../../../src/execution/replay/result_order.ts";
import { FakeHost } from "../../support/fake_host.ts";

/** Asks for results side by side, and answers the order in which they come. */
async function order(turns: ResultOrder, asked: readonly number[], host: FakeHost): Promise<number[]> {
  const delivered: number[] = [];
  for (const recordedNo of asked) turns.wait(recordedNo).then(() => delivered.push(recordedNo));
  await host.settle();
  return delivered;
}

Deno.test("ResultOrder.wait() delivers what is asked for together in the order of the records", async () => {
  const host = new FakeHost();

  const delivered = await order(new ResultOrder([1, 2, 3, 4], host), [4, 2, 1, 3], host);

  assert.deepEqual(delivered, [1, 2, 3, 4]);
});

Deno.test("ResultOrder.wait() waits for nothing that nobody asks for", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([1, 2, 3, 5, 9], host);

  const delivered = await order(turns, [9, 3], host);

  assert.deepEqual(delivered, [3, 9]);
  assert.equal(turns.isReplaying, false);
});

Deno.test("ResultOrder.wait() delivers what is asked for after later results", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([1, 2, 3], host);
  await order(turns, [3], host);

  assert.deepEqual(await order(turns, [1], host), [1]);
});

Deno.test("ResultOrder.wait() delivers in their order, too, what is asked for after later results", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([1, 2, 3], host);
  await order(turns, [3], host);

  const delivered = await order(turns, [2, 1], host);

  assert.deepEqual(delivered, [1, 2]);
});

Deno.test("ResultOrder.wait() waits for what the job asks for after any number of turns of its own", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([1, 2], host);
  const delivered: number[] = [];

  const second = turns.wait(2).then(() => delivered.push(2));
  for (let turn = 0; turn < 100; turn++) await Promise.resolve();
  await turns.wait(1);
  delivered.push(1);
  await second;

  assert.deepEqual(delivered, [1, 2]);
});

Deno.test("ResultOrder.wait() delivers a result only when the job has done with the one before", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([1, 2], host);
  const done: string[] = [];

  const slow = turns.wait(1).then(async () => {
    for (let turn = 0; turn < 100; turn++) await Promise.resolve();
    done.push("first");
  });
  const quick = turns.wait(2).then(() => done.push("second"));
  await Promise.all([slow, quick]);

  assert.deepEqual(done, ["first", "second"]);
});

Deno.test("ResultOrder.expect() holds live results back until the answer is there, but not those of a replay", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([1, 2], host);
  const answer = Promise.withResolvers<void>();
  const delivered: number[] = [];
  const expected = turns.expect(answer.promise).then(() => turns.wait(3)).then(() => delivered.push(3));

  for (const no of [4, 2]) turns.wait(no).then(() => delivered.push(no));
  await host.settle();
  const before = [...delivered];
  answer.resolve();
  await expected;
  await host.settle();

  assert.deepEqual(before, [2]);
  assert.deepEqual(delivered, [2, 3, 4]);
});

Deno.test("ResultOrder.isReplaying ends with the last recorded result, or when the job asks for nothing old any more", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([1, 2], host);
  const other = new ResultOrder([1, 2], host);
  const states = [new ResultOrder([], host).isReplaying, turns.isReplaying];

  await turns.wait(1);
  states.push(turns.isReplaying);
  await turns.wait(2);
  states.push(turns.isReplaying);
  const old = other.wait(1);
  other.noteNew();
  await old;
  states.push(other.isReplaying);
  await host.settle();
  states.push(other.isReplaying);

  assert.deepEqual(states, [false, true, true, false, true, false]);
});

Deno.test("ResultOrder.settled() waits without turning the event loop while a result is held", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([], host);
  const answer = Promise.withResolvers<void>();
  const expected = turns.expect(answer.promise);
  let defers = 0;
  const { defer } = host;
  host.defer = (callback) => {
    defers += 1;
    defer.call(host, callback);
  };

  turns.wait(1);
  const settled = turns.settled();
  await host.settle(50);
  const whileHeld = defers - 50;
  answer.resolve();
  await Promise.all([expected, settled]);

  assert.ok(whileHeld <= 2, `${whileHeld} turns`);
});

Deno.test("ResultOrder.wait() gives a branch time that takes a turn of the event loop of its own", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([1, 2, 3, 4], host);
  const delivered: number[] = [];
  const ask = (recordedNo: number) => turns.wait(recordedNo).then(() => delivered.push(recordedNo));

  const slow = async () => {
    await ask(1);
    await new Promise<void>((resolve) => host.defer(resolve));
    await ask(3);
  };
  const fast = async () => {
    await ask(2);
    await ask(4);
  };
  await Promise.all([slow(), fast()]);

  assert.deepEqual(delivered, [1, 2, 3, 4]);
});

Deno.test("ResultOrder.wait() takes one turn for a live result, whatever was recorded before", async () => {
  const host = new FakeHost();
  const turns = new ResultOrder([0, 0, ...Array.from({ length: 50 }, (_, n) => n + 1)], host);
  await order(turns, [50], host);
  let turnsTaken = 0;
  const defer = host.defer.bind(host);
  host.defer = (callback) => {
    turnsTaken += 1;
    defer(callback);
  };

  turns.wait(51);

  assert.equal(turnsTaken, 1);
  await host.settle();
});
