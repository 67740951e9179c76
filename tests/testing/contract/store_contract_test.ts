import assert from "node:assert/strict";
import { StoreError } from "../../../src/model/error.ts";
import type { Fact } from "../../../src/model/fact.ts";
import { type Host, systemHost } from "../../../src/model/host.ts";
import type { Store } from "../../../src/store/store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { storeContract } from "../../../src/testing/contract/store_contract.ts";

type Open = (host: Host) => Store | Promise<Store>;

/** A mistake of a store. */
interface Mistake {
  /** What a store does that has it. */
  what: string;
  /** A test that finds it. */
  foundBy: string;
  /** Whether it takes a host to find it. */
  needsHost?: true;
  /** The methods that have it. */
  methods: (store: MemoryStore) => Partial<Store>;
}

const MISTAKES: Mistake[] = [
  {
    what: "accepts a write under a lost lease",
    foundBy: "saveStep is refused if the run has fewer records than its holder knows",
    methods: (store) => ({
      saveStep: (...write) => store.saveStep(...write).catch(() => ({ recordedNo: 1, retry: null })),
    }),
  },
  {
    what: "ignores idempotency keys",
    foundBy: "enqueue() answers the run that has the idempotency key",
    methods: (store) => ({
      enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, idempotencyKey: null }))),
    }),
  },
  {
    what: "takes a repeated claim for a new one",
    foundBy: "claim() leaves out of a repeated call what is no longer held",
    methods: (store) => ({
      claim: (request) => store.claim({ ...request, claimId: crypto.randomUUID() }),
    }),
  },
  {
    what: "keeps keys in a column that ignores case",
    foundBy: "enqueue() tells similar idempotency keys apart, and searchRuns() finds each alone",
    methods: (store) => ({
      enqueue: (runs) =>
        store.enqueue(runs.map((run) => ({ ...run, idempotencyKey: run.idempotencyKey?.toLowerCase() ?? null }))),
    }),
  },
  {
    what: "searches by LIKE",
    foundBy: "getRuns() and searchRuns() tell similar labels apart",
    methods: (store) => ({ searchRuns: (text, limit) => store.searchRuns(text.replace("%", "rder"), limit) }),
  },
  {
    what: "keeps payloads in a column that sorts keys",
    foundBy: "values keep the order of their keys, and each character",
    methods: (store) => ({
      signal: (id, signal) =>
        store.signal(id, { ...signal, payload: JSON.parse(JSON.stringify(signal.payload, ["a", "b", "c", "d"])) }),
    }),
  },
  {
    what: "hands out what it keeps",
    foundBy: "readRuns() answers copies that are the reader's own",
    methods: (store) => {
      const kept = new Map<string, ReturnType<Store["readRuns"]>>();
      return {
        readRuns: (ids, maxLength) =>
          kept.get(String(ids)) ?? kept.set(String(ids), store.readRuns(ids, maxLength)).get(String(ids))!,
      };
    },
  },
  {
    what: "answers a refusal with an error of the store",
    foundBy: "finish is refused if the run has fewer records than its holder knows",
    methods: (store) => ({
      finish: (...end) => store.finish(...end).catch((cause) => Promise.reject(new StoreError("no", { cause }))),
    }),
  },
  {
    what: "forgets facts",
    foundBy: "the journal tells a run from its trigger to its end",
    methods: (store) => ({
      readJournal: async (after, maxLength) => {
        const page = await store.readJournal(after, maxLength);
        if (page === null) return null;
        const withoutCancelled = ({ facts }: { facts: readonly Fact[] }) =>
          facts.filter(([, kind]) => kind !== "cancelled");
        return { ...page, rows: page.rows.map((row) => ({ ...row, facts: withoutCancelled(row) })) };
      },
    }),
  },
  {
    what: "grants longer leases than it was asked for",
    foundBy: "claim() takes a lease away at the instant at which it expires",
    needsHost: true,
    methods: (store) => ({
      claim: (request) => store.claim({ ...request, leaseMs: request.leaseMs + 1 }),
    }),
  },
  {
    what: "tells its own time",
    foundBy: "open() gives a store that tells the time of the host",
    needsHost: true,
    methods: () => {
      const other = new MemoryStore();
      return { enqueue: (runs) => other.enqueue(runs) };
    },
  },
];

/** A MemoryStore of which some methods are others. */
function toy(host: Host, methods: Mistake["methods"]): Store {
  const store = new MemoryStore({ host });
  const replaced = methods(store);
  return new Proxy(store as Store, {
    get(target, name) {
      const method = replaced[name as keyof Store] ?? Reflect.get(target, name, target);
      return typeof method === "function" ? method.bind(target) : method;
    },
  });
}

/** What the contract registers for a store. */
function register(open: Open) {
  const tests = new Map<string, () => Promise<void>>();
  const skipped: string[] = [];
  storeContract("a toy", open, {
    test: Object.assign((name: string, body: () => Promise<void>) => void tests.set(name, body), {
      skip: (name: string) => void skipped.push(name),
    }),
  });
  return { tests, skipped };
}

storeContract("a toy without mistakes", (host) => toy(host, () => ({})));
storeContract("SqliteStore on the clock of the system", () => SqliteStore.open(":memory:"));
let now = Date.now();
storeContract("MemoryStore on a clock that never shows an instant twice", () => {
  return new MemoryStore({ host: { ...systemHost, now: () => now += 400 } });
});

for (const { what, foundBy, needsHost = false, methods } of MISTAKES) {
  const find = async (open: Open) => {
    const test = register(open).tests.get(`a toy: ${foundBy}`);
    assert.ok(test, `There is no test "${foundBy}"`);
    await assert.rejects(test());
  };

  Deno.test(`storeContract() finds that a store ${what}`, () => find((host) => toy(host, methods)));

  if (needsHost) continue;
  Deno.test(`storeContract() finds that a store with its own clock ${what}`, () =>
    find(() => toy(systemHost, methods)));
}

Deno.test("storeContract() skips what sets the clock of the store if open() takes no host, and prints why", () => {
  const lines: string[] = [];
  const { log } = console;
  console.log = (line: string) => void lines.push(line);
  try {
    const withHost = register((host) => new MemoryStore({ host }));
    const without = register(() => new MemoryStore());

    assert.deepEqual(withHost.skipped, []);
    assert.equal(without.tests.size + without.skipped.length, withHost.tests.size);
    assert.ok(without.tests.size > 500, `${without.tests.size} tests`);
    assert.ok(without.skipped.includes("a toy: open() gives a store that tells the time of the host"));
    assert.deepEqual(lines, [
      `a toy: ${without.skipped.length} of the ${withHost.tests.size} tests of the contract are skipped. They set the ` +
      "clock of the store, but open() has no parameter, so its store does not tell the time of a host",
    ]);
  } finally {
    console.log = log;
  }
});

Deno.test("storeContract() closes each store, also after a test that fails", async () => {
  let open = 0;
  const { tests } = register((host) => {
    open += 1;
    return toy(host, (store) => ({
      readRuns: () => Promise.reject(new Error("broken")),
      close: () => {
        open -= 1;
        return store.close();
      },
    }));
  });

  await assert.rejects(tests.get("a toy: getRun() answers null for an unknown run")!(), /broken/);

  assert.equal(open, 0);
});
