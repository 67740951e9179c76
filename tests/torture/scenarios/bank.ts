import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createEngine, defineJob, SqliteStore } from "../../../mod.ts";
import { anything } from "../../processes/anything.ts";
import { Child } from "../../processes/child.ts";
import { inTime } from "../../processes/deadline.ts";
import type { Scenario } from "../scenario.ts";
import type { Patience } from "./patience.ts";

const ACCOUNTS = 20;
const CENTS = 10_000;
const WORKERS = 2;
const LOOK_EVERY_MS = 10;

/**
 * Transfers between accounts by workers that die around each commit. With `step.transaction()` each is made once, in the
 * file of the store or in another one, and the total is the same at every look. The control, a commit of its own in a
 * step, has to make some twice: otherwise the deaths prove nothing.
 */
export const bank: Scenario = {
  name: "a bank whose workers are killed around commits",

  async run({ isBrief, patience }) {
    const transfers = isBrief ? 60 : 600;
    const told: string[] = [];
    for (const way of ["joined", "apart", "own commit"]) {
      const { made, deaths, looks } = await execute(way, transfers, patience);
      const twice = made.length - new Set(made).size;
      assert.equal(new Set(made).size, transfers, `${way}: transfers are missing`);
      if (way === "own commit") {
        assert.ok(twice > 0, `the control made no transfer twice in ${deaths} deaths: too mild`);
      } else assert.equal(twice, 0, `${way}: transfers were made twice`);
      assert.ok(deaths > 0 && looks > 0, `${way}: ${deaths} deaths, ${looks} looks`);
      told.push(`${way}: ${made.length} transfers for ${transfers}, ${deaths} deaths`);
    }
    return { outcome: "held", told: told.join("; ") };
  },
};

async function execute(
  way: string,
  transfers: number,
  patience: Patience,
): Promise<{ made: string[]; deaths: number; looks: number }> {
  const folder = await Deno.makeTempDir({ prefix: "bank-" });
  const bankFile = join(folder, "bank.db");
  const jobsFile = way === "joined" ? bankFile : join(folder, "jobs.db");
  const accounts = openBank(bankFile);
  try {
    await using store = await SqliteStore.open(jobsFile);
    const transfer = defineJob({ name: "transfer", input: anything(), run: () => {} });
    await using engine = createEngine({ store, jobs: { transfer } });
    const items = Array.from({ length: transfers }, () => ({ input: aTransfer() }));
    const runs = (await Promise.all(slices(items, 100).map((some) => engine.jobs.transfer.batchTrigger(some)))).flat();
    const isOver = new AbortController();
    const watching = watchTotal(accounts, isOver.signal);
    const keeping = Array.from({ length: WORKERS }, () => keepAlive([way, jobsFile, bankFile], isOver.signal));
    try {
      for (const { id } of runs) {
        patience.check();
        await inTime(engine.waitForRun(id), `transfer ${id} was to end`);
      }
    } finally {
      isOver.abort();
    }
    const deaths = (await Promise.all(keeping)).reduce((sum, each) => sum + each, 0);
    const made = accounts.prepare("SELECT run_id FROM transfers").all().map(({ run_id }) => String(run_id));
    return { made, deaths, looks: await watching };
  } finally {
    accounts.close();
    await Deno.remove(folder, { recursive: true });
  }
}

function openBank(file: string): DatabaseSync {
  const accounts = new DatabaseSync(file);
  accounts.exec(`PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL;
    CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL); CREATE TABLE transfers (run_id TEXT NOT NULL)`);
  for (let id = 0; id < ACCOUNTS; id++) accounts.prepare("INSERT INTO accounts VALUES (?, ?)").run(id, CENTS);
  return accounts;
}

function aTransfer() {
  const [from, step, cents] = [ACCOUNTS, ACCOUNTS - 1, 100].map((most) => Math.floor(Math.random() * most));
  return { from: from!, to: (from! + 1 + step!) % ACCOUNTS, cents: cents! };
}

function slices<T>(items: readonly T[], length: number): T[][] {
  return Array.from(
    { length: Math.ceil(items.length / length) },
    (_, at) => items.slice(at * length, (at + 1) * length),
  );
}

/** Looks at the total until the signal fires. Answers how often it has looked. */
async function watchTotal(accounts: DatabaseSync, signal: AbortSignal): Promise<number> {
  const total = accounts.prepare("SELECT sum(cents) AS cents FROM accounts");
  let looks = 0;
  do {
    assert.equal(total.get()!.cents, ACCOUNTS * CENTS, "the total of the accounts has changed");
    looks += 1;
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  } while (!signal.aborted);
  return looks;
}

/** Keeps a worker alive, which dies now and then, until the signal fires. Answers how often it has died. */
async function keepAlive(args: string[], signal: AbortSignal): Promise<number> {
  for (let deaths = 0;; deaths++) {
    await using worker = new Child({ file: new URL("bank_worker.ts", import.meta.url).href }, ...args);
    const { promise: over, resolve } = Promise.withResolvers<"over">();
    const end = () => resolve("over");
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
    const how = await Promise.race([worker.ended, over]);
    signal.removeEventListener("abort", end);
    if (how === "over") return deaths;
    assert.equal(how.signal, "SIGKILL", "a worker has ended otherwise than by its own kill");
  }
}
