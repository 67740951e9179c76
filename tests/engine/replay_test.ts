import assert from "node:assert/strict";
import { Replay } from "../../src/engine/replay.ts";
import { FakeHost } from "../support/fake_host.ts";

/** Asks for results side by side, and answers the order in which they come. */
async function order(replay: Replay, asked: readonly number[], host: FakeHost): Promise<number[]> {
  const delivered: number[] = [];
  for (const recordedNo of asked) {
    (async () => {
      await replay.deliver(recordedNo);
      delivered.push(recordedNo);
    })();
  }
  await host.settle();
  return delivered;
}

Deno.test("Replay.deliver() delivers what is asked for one after another at once", () => {
  const replay = new Replay([3, 1, 2], new FakeHost());

  const answers = [1, 2, 3].map((recordedNo) => {
    const answer = replay.deliver(recordedNo);
    replay.noteArrival();
    return answer;
  });

  assert.deepEqual(answers, [undefined, undefined, undefined]);
  assert.equal(replay.isUnderWay, false);
});

Deno.test("Replay.deliver() delivers what is asked for together in the order of the commits", async () => {
  const host = new FakeHost();

  const delivered = await order(new Replay([1, 2, 3, 4], host), [4, 2, 1, 3], host);

  assert.deepEqual(delivered, [1, 2, 3, 4]);
});

Deno.test("Replay.deliver() passes over what nobody asks for", async () => {
  const host = new FakeHost();
  const replay = new Replay([1, 2, 3, 5, 9], host);

  const delivered = await order(replay, [9, 3], host);

  assert.deepEqual(delivered, [3, 9]);
  assert.equal(replay.isUnderWay, false);
});

Deno.test("Replay.deliver() delivers at once what was passed over, or was never in the order", async () => {
  const host = new FakeHost();
  const replay = new Replay([1, 2, 3], host);
  await order(replay, [3], host);

  assert.equal(replay.deliver(1), undefined);
  assert.equal(replay.deliver(7), undefined);
});

Deno.test("Replay.deliver() waits for what the job asks for after a few turns of its own", async () => {
  const host = new FakeHost();
  const replay = new Replay([1, 2], host);
  const delivered: number[] = [];

  const second = replay.deliver(2)!.then(() => delivered.push(2));
  for (let turn = 0; turn < 100; turn++) await Promise.resolve();
  await replay.deliver(1);
  delivered.push(1);
  await second;

  assert.deepEqual(delivered, [1, 2]);
});

Deno.test("Replay.isUnderWay ends with the last recorded result, or when something new begins", async () => {
  const replay = new Replay([1, 2], new FakeHost());
  const other = new Replay([1, 2], new FakeHost());
  const states = [new Replay([], new FakeHost()).isUnderWay, replay.isUnderWay];

  await replay.deliver(1);
  states.push(replay.isUnderWay);
  await replay.deliver(2);
  states.push(replay.isUnderWay);
  other.end();
  states.push(other.isUnderWay);

  assert.deepEqual(states, [false, true, true, false, false]);
});

Deno.test("Replay.end() leaves the order as it is", async () => {
  const host = new FakeHost();
  const replay = new Replay([1, 2], host);
  replay.end();

  const delivered = await order(replay, [2, 1], host);

  assert.deepEqual(delivered, [1, 2]);
});
