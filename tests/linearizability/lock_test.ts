import assert from "node:assert/strict";
import { check, shrink } from "./checker.ts";
import type { Fact } from "./facts.ts";
import { type Cancel, lockHistory } from "./lock_history.ts";
import { LOCK_MODEL } from "./lock_model.ts";

const LEASE_MS = 1_000;

/** What is known of one lease: it is claimed at an instant, and its function is executed from then on. */
function lease(run: string, generation: number, at: number, left: number | null, more: Partial<{
  room: number;
  renewed: number[];
  retriedAt: number;
}> = {}): Fact[] {
  const { room = 1, renewed = [], retriedAt } = more;
  const about = { of: "lock", run, generation };
  const kept = { ...about, id: `retry ${run} ${generation}` };
  return [
    {
      is: "claimed",
      ...about,
      from: at - 5,
      to: at,
      until: at + LEASE_MS,
      room,
      isFirst: generation === 1,
      slot: null,
    },
    { is: "entered", ...about, id: "step", when: at },
    ...renewed.map((at): Fact => ({ is: "renewed", ...about, from: at, to: at + 3, until: at + LEASE_MS })),
    ...(left === null ? [] : [{ is: "left", ...about, id: "step", when: left } satisfies Fact]),
    ...(retriedAt === undefined ? [] : [
      { is: "parking", ...kept, from: retriedAt, keeps: true } satisfies Fact,
      { is: "parked", ...kept, to: retriedAt + 4, isParked: true } satisfies Fact,
    ]),
  ];
}

const shared = { room: 2 };

const RIGHT: Record<string, [facts: Fact[], cancels?: Cancel[]]> = {
  "a run after the other": [[...lease("a", 1, 0, 100), ...lease("b", 1, 102, 200)]],
  "a suspended process goes on with its function after its lease has expired": [
    [...lease("a", 1, 0, 3_000), ...lease("b", 1, 1_004, 1_100)],
  ],
  "a killed process keeps the key until its lease has expired": [
    [...lease("a", 1, 0, null), ...lease("b", 1, 1_002, 1_100), ...lease("a", 2, 1_200, 1_300)],
  ],
  "the function of a cancelled run goes on, and the next run begins after its end": [
    [...lease("a", 1, 0, 500), ...lease("b", 1, 503, 600)],
    [{ run: "a", from: 100, to: 110 }],
  ],
  "a run that waits for a retry is cancelled, and its key is free": [
    [...lease("a", 1, 0, 100, { retriedAt: 101 }), ...lease("b", 1, 210, 300)],
    [{ run: "a", from: 200, to: Infinity }],
  ],
  "two runs share a key, and the third waits": [
    [...lease("a", 1, 0, 100, shared), ...lease("b", 1, 50, 200, shared), ...lease("c", 1, 103, 300, shared)],
  ],
  "a run comes back to the key that it kept": [
    [...lease("a", 1, 0, 100, { retriedAt: 101 }), ...lease("a", 2, 1_200, 1_300), ...lease("b", 1, 1_301, 1_400)],
  ],
  "nobody knows whether a run was parked: its process was killed before the answer": [
    [
      ...lease("a", 1, 0, 100, { retriedAt: 101 }).filter(({ is }) => is !== "parked"),
      ...lease("b", 1, 1_010, 1_100),
    ],
  ],
};

const WRONG: Record<string, [facts: Fact[], cancels?: Cancel[]]> = {
  "two functions at once": [[...lease("a", 1, 0, 100), ...lease("b", 1, 50, 200)]],
  "a key is taken from a killed process before its lease has expired": [
    [...lease("a", 1, 0, null), ...lease("b", 1, 900, 1_000)],
  ],
  "a key is taken from a suspended process whose lease was renewed": [
    [...lease("a", 1, 0, 3_000, { renewed: [500] }), ...lease("b", 1, 1_200, 1_300)],
  ],
  "a key is taken from a run that was cancelled and whose function goes on": [
    [...lease("a", 1, 0, 500), ...lease("b", 1, 300, 400)],
    [{ run: "a", from: 100, to: 110 }],
  ],
  "a key is taken from a run that waits for a retry": [
    [...lease("a", 1, 0, 100, { retriedAt: 101 }), ...lease("b", 1, 210, 300), ...lease("a", 2, 1_200, 1_300)],
  ],
  "three runs share a key for two": [
    [...lease("a", 1, 0, 100, shared), ...lease("b", 1, 50, 200, shared), ...lease("c", 1, 90, 300, shared)],
  ],
  "a run wants the key alone and does not get it so": [
    [...lease("a", 1, 0, 100, shared), ...lease("b", 1, 50, 200)],
  ],
  "a lease counts again after the key was taken": [
    [...lease("a", 1, 0, null, { renewed: [1_300] }), ...lease("b", 1, 1_100, 1_200)],
  ],
  "two leases of one run": [[...lease("a", 1, 0, 500), ...lease("a", 2, 200, 600)]],
};

for (const [what, [facts, cancels = []]] of Object.entries(RIGHT)) {
  Deno.test(`LOCK_MODEL accepts: ${what}`, () => {
    assert.equal(check(LOCK_MODEL, lockHistory(facts, true, cancels)), "linearizable");
  });
}

for (const [what, [facts, cancels = []]] of Object.entries(WRONG)) {
  Deno.test(`LOCK_MODEL refuses: ${what}`, () => {
    assert.equal(check(LOCK_MODEL, lockHistory(facts, true, cancels)), "not linearizable");
  });
}

Deno.test("a limit of a job, unlike a key, is free while a run waits for a retry", () => {
  const facts = [
    ...lease("a", 1, 0, 100, { retriedAt: 101 }),
    ...lease("b", 1, 110, 300),
    ...lease("a", 2, 1_200, 1_300),
  ];

  assert.equal(check(LOCK_MODEL, lockHistory(facts, false, [])), "linearizable");
});

Deno.test("shrink() leaves the two leases of a lock that contradict, of many", () => {
  const facts = Array.from(
    { length: 30 },
    (_, no) => lease(`run ${no}`, 1, no * 100, no * 100 + (no === 17 ? 120 : 90)),
  );

  const shrunk = shrink(LOCK_MODEL, lockHistory(facts.flat(), true, []));

  assert.deepEqual(
    shrunk.filter(({ told }) => told !== null).map(({ ask }) => `${ask.is} ${ask.run}`).toSorted(),
    ["claim run 17", "claim run 18", "hold run 17"],
  );
});
