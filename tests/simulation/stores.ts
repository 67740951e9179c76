import { DatabaseSync } from "node:sqlite";
import type { Host } from "../../src/model/host.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { findFaultAgain } from "../stores/postgres/postgres_faults.ts";
import { findWrongCount } from "../support/counts.ts";
import { findBrokenLine } from "../support/lines.ts";
import type { Mutant } from "./mutants/mutant.ts";
import { emptyServer } from "./pglite.ts";
import { TwinStore } from "./twin_store.ts";
import type { World } from "./world.ts";

/** Which stores a simulation can run over; `twin` is the first two, compared after each call. */
export const STORE_KINDS = ["memory", "sqlite", "twin", "postgres"] as const;

/** One of them. */
export type StoreKind = typeof STORE_KINDS[number];

/** The store of a world, which its processes share. */
export interface SharedStore {
  /** The store as a process opens it. */
  open(host: Host): Promise<Store>;
  /** Reads what is committed, past everything that can go wrong. */
  truth: Store;
  /** How many characters of facts its journal keeps. */
  journalLength: number;
  /** Whether it also trims what is old. */
  trimsByAge: boolean;
  /** Whether rows of runs and steps are facts: they are gone with their run. */
  hasRowFacts: boolean;
  /** Whether no fact has some numbers of the journal, and some facts of a commit get the first of its numbers. */
  numbersFreely: boolean;
  /** A number that changes with each change. */
  countChanges(): Promise<number>;
  /** What is wrong in the tables: in the lines for concurrency keys, or in what is counted; or `null`. */
  findFault(): Promise<string | null> | string | null;
  /** Lets the store's own disk be full, or no longer, if it has one. */
  fillDisk?(isFull: boolean): void;
  close(): Promise<void>;
}

/** What makes stores faulty: a double before any of them, or one that reaches into the database of a `SqliteStore`. */
export type Fault = Pick<Mutant, "store" | "database">;

/** Makes an empty store, with a fault if one is given. */
export async function makeStore(
  kind: StoreKind,
  world: World,
  fault: Fault = {},
  journalLength = Infinity,
): Promise<SharedStore> {
  const host = worldHost(world);
  if (kind === "sqlite") return await makeSqlite(host, fault);
  if (kind === "postgres") return await makePostgres(host, fault);
  if (kind === "twin") return await makeTwin(host, fault);
  const make = (host: Host) => new MemoryStore({ host, journalLength });
  const store = fault.store?.(make, host) ?? make(host);
  return {
    open: () => Promise.resolve(store),
    truth: store,
    journalLength,
    trimsByAge: false,
    hasRowFacts: false,
    numbersFreely: false,
    countChanges: () => store.getVersion(),
    findFault: () => null,
    close: () => store.close(),
  };
}

const MAX_PAGES = 1_000_000;

/**
 * Each process has a store of its own, with statements and a write batch of its own. They share one connection, though:
 * no call ever finds the database locked by another process.
 */
async function makeSqlite(host: Host, fault: Fault): Promise<SharedStore> {
  const database = new DatabaseSync(":memory:");
  const truth = await openSqlite(database, { ...host, defer: queueMicrotask }, fault);
  await truth.migrate();
  // That a worker has claimed is no change: each claim that finds nothing says so. The trigger's own row is one, too.
  database.exec(`
    CREATE TEMP TABLE claims (count INTEGER NOT NULL);
    INSERT INTO claims VALUES (0);
    CREATE TEMP TRIGGER first_claim AFTER INSERT ON holdfast_workers BEGIN UPDATE claims SET count = count + 1; END;
    CREATE TEMP TRIGGER next_claim AFTER UPDATE ON holdfast_workers BEGIN UPDATE claims SET count = count + 1; END`);
  const changes = database.prepare("SELECT total_changes() - 2 * claims.count AS count FROM claims");
  return {
    // The store has one clock, whatever those of its processes show.
    open: async ({ ...rest }) => answeringInOrder(await openSqlite(database, { ...rest, now: host.now }, fault)),
    truth,
    journalLength: Infinity,
    trimsByAge: true,
    hasRowFacts: true,
    numbersFreely: true,
    countChanges: () => Promise.resolve(Number(changes.get()!.count)),
    findFault: () => findBrokenLine(database) ?? findWrongCount(database),
    // It is full at the size that it has: what fits in free pages can still be written.
    fillDisk: (isFull) => database.exec(`PRAGMA max_page_count = ${isFull ? 1 : MAX_PAGES}`),
    close: () => Promise.resolve(database.close()),
  };
}

async function openSqlite(database: DatabaseSync, host: Host, fault: Fault): Promise<Store> {
  // A double says which host the store is to have when it is open already.
  let actual = host;
  const store = await SqliteStore.from(database as unknown as SqliteDriver, {
    host: { ...host, now: () => actual.now() },
  });
  const make = (host: Host) => {
    actual = host;
    return store;
  };
  const made = fault.store?.(make, host) ?? store;
  return fault.database?.(made, database) ?? made;
}

// What answers some turns later than the others: the order of the answers would else not be that of the commits.
const LATE = new Set<PropertyKey>(["claim", "signal", "send", "delete", "purge"]);

/** The same store, in which such a call shares no transaction with another. */
function answeringInOrder(store: Store): Store {
  let late: Promise<unknown> = Promise.resolve();
  const underWay = new Set<Promise<unknown>>();
  return new Proxy(store, {
    get: (_, method) => {
      if (method === "then") return undefined;
      return (...parameters: unknown[]) => {
        const isLate = LATE.has(method);
        const before = isLate ? Promise.allSettled([late, ...underWay]) : late.catch(() => {});
        const call = before.then(() =>
          (store[method as keyof Store] as (...parameters: unknown[]) => Promise<unknown>)(...parameters)
        );
        if (isLate) late = call;
        underWay.add(call);
        call.catch(() => {}).finally(() => underWay.delete(call));
        return call;
      };
    },
  });
}

/**
 * Each process has a store of its own. They share one connection: the calls of two processes are never under way at the
 * same time.
 */
async function makePostgres(host: Host, fault: Fault): Promise<SharedStore> {
  const { client, schema } = await emptyServer();
  const open = (host: Host): Store => {
    let actual = host;
    const given = { ...host, now: () => actual.now() };
    const store = PostgresStore.from(client, { schema, durability: "relaxed", host: given });
    const make = (host: Host) => {
      actual = host;
      return store;
    };
    return fault.store?.(make, host) ?? store;
  };
  const truth = open(host);
  return {
    // The store has one clock, whatever those of its processes show.
    open: ({ ...rest }) => Promise.resolve(open({ ...rest, now: host.now })),
    truth,
    journalLength: Infinity,
    trimsByAge: true,
    hasRowFacts: false,
    numbersFreely: true,
    countChanges: () => truth.getVersion(),
    findFault: () => findFaultAgain(client, schema),
    close: () => Promise.resolve(),
  };
}

async function makeTwin(host: Host, fault: Fault): Promise<SharedStore> {
  const database = new DatabaseSync(":memory:");
  // It commits at once, so that both stores have done the same whenever somebody looks.
  const sqlite = await openSqlite(database, { ...host, defer: queueMicrotask }, fault);
  await sqlite.migrate();
  const twin = new TwinStore(new MemoryStore({ host: { ...host, newId: countingIds() } }), sqlite, database);
  return {
    open: () => Promise.resolve(twin.store),
    truth: twin.store,
    journalLength: Infinity,
    trimsByAge: false,
    hasRowFacts: false,
    numbersFreely: false,
    countChanges: () => twin.countChanges(),
    findFault: () => findBrokenLine(database) ?? findWrongCount(database),
    close: () => Promise.resolve(database.close()),
  };
}

function worldHost(world: World): Host {
  return {
    now: () => world.wallNow,
    monotonic: () => world.now,
    schedule: (ms, callback) => world.after(ms, null, callback),
    defer: (callback) => void world.after(0, null, callback),
    random: () => 0.5,
    newId: countingIds(),
  };
}

/** Each store makes ids in an order of its own, so that two stores that do the same make the same. */
function countingIds(): () => string {
  let ids = 0;
  return () => `copy-${ids++}`;
}
