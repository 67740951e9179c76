import { HoldfastError, LeaseLostError, WorkError } from "../../../src/model/error.ts";
import type { Effects } from "../../../src/model/effects.ts";
import type { Store } from "../../../src/store/store.ts";
import type { FindRun, FindWait, StepPlace, StoreAnswers, StoreWrites } from "../../../src/store/transaction.ts";
import { SqliteDatabase } from "../../../src/stores/sqlite/sqlite_database.ts";
import { double } from "../mutants/doubles.ts";
import { replace } from "../mutants/replace.ts";
import type { World } from "../world.ts";
import type { BankWay } from "./bank_simulation.ts";

/** A bug of transactions that the simulation of the bank has to find. */
export interface BankMutant {
  /** What it does wrong. */
  name: string;
  /** The rule that it breaks. */
  rule: string;
  /** In which bank it is. */
  way: BankWay;
  /** The store as a process has it, made wrong. */
  store?: (store: Store, world: World) => Store;
  /** The transactions of a data source that is not joined, or its outbox, made wrong. */
  effects?: (effects: Effects) => Effects;
  /** Replaces code of the project itself, until the returned function is called. */
  code?: () => () => void;
}

type Transact = NonNullable<Store["transact"]>;
type Work = (tx: never, findWait: FindWait, findRun: FindRun) => StoreWrites | Promise<StoreWrites>;

/** A store whose `transact` is made wrong. */
function transacting(
  change: (
    transact: (step: StepPlace | null, work: Work) => Promise<StoreAnswers>,
    step: StepPlace | null,
    work: Work,
    store: Store,
    world: World,
  ) => Promise<StoreAnswers>,
): NonNullable<BankMutant["store"]> {
  return (store, world) =>
    double(store, {
      transact: ((source, step, work) =>
        change(
          (step, work) => store.transact!(source, step, work as never),
          step,
          work as Work,
          store,
          world,
        )) as Transact,
    });
}

function effectsWith(methods: (effects: Effects) => Partial<Effects>): NonNullable<BankMutant["effects"]> {
  return (effects) => {
    const own = methods(effects);
    return new Proxy(effects, {
      get: (_, name) => {
        const value = own[name as keyof Effects] ?? effects[name as keyof Effects];
        return typeof value === "function" ? value.bind(effects) : value;
      },
    });
  };
}

const NOTHING = new Error("Only the lease was asked for");

/** Throws unless the lease is the current one. */
async function checkFence(transact: (step: StepPlace, work: Work) => Promise<StoreAnswers>, step: StepPlace) {
  try {
    return await transact(step, () => {
      throw NOTHING;
    });
  } catch (error) {
    if (!(error instanceof WorkError) || error.cause !== NOTHING) throw error;
    return null;
  }
}

function releaseEarly(): () => void {
  return replace(SqliteDatabase.prototype, "savepoint", (old) =>
    function (this: SqliteDatabase, sql) {
      if (sql === "SAVEPOINT holdfast_work") return old.call(this, `${sql}; RELEASE holdfast_work`);
      if (!/^(?:RELEASE|ROLLBACK TO) holdfast_work\b/.test(sql)) old.call(this, sql);
    });
}

/** One bug for each rule of transactions. */
export const BANK_MUTANTS: readonly BankMutant[] = [
  {
    name: "the fence is checked first, and not last",
    rule: "the lease is checked in the transaction that has the rows",
    way: "joined",
    store: transacting(async (transact, step, work, store, world) => {
      if (step === null) return await transact(step, work);
      const recorded = await checkFence(transact, step);
      if (recorded !== null) return recorded;
      await world.pass(30);
      let record: StoreWrites["step"] = null;
      const answers = await transact(null, (tx, ...find) => {
        const writes = work(tx, ...find) as StoreWrites;
        record = writes.step;
        return { ...writes, step: null };
      });
      const { write, reports } = record!;
      return { ...answers, step: await store.saveStep(step.lease(), write, reports) };
    }),
  },
  {
    name: "there is no fence",
    rule: "the lease is checked in the transaction that has the rows",
    way: "joined",
    store: transacting(async (transact, step, work, store) => {
      if (step === null) return await transact(step, work);
      let record: StoreWrites["step"] = null;
      const answers = await transact(null, (tx, ...find) => {
        const writes = work(tx, ...find) as StoreWrites;
        record = writes.step;
        return { ...writes, step: null };
      });
      const { write, reports } = record!;
      const saved = await store.saveStep(step.lease(), write, reports).catch((error) => {
        if (error instanceof LeaseLostError) return { recordedNo: 1, retry: null };
        throw error;
      });
      return { ...answers, step: saved };
    }),
  },
  {
    name: "the record is written before the function is called",
    rule: "rows and record are one commit",
    way: "joined",
    store: transacting(async (transact, step, work) => {
      if (step === null) return await transact(step, work);
      let writes: StoreWrites | null = null;
      const answers = await transact(step, (tx, ...find) => {
        const first = work(tx, ...find) as StoreWrites;
        writes = first;
        throw NOTHING; // what the function wrote is not committed with the record
      }).catch((error) => {
        if (!(error instanceof WorkError) || error.cause !== NOTHING) throw error;
        return null;
      });
      return answers ?? await transact(step, () => writes!);
    }),
  },
  {
    name: "a savepoint of the store is released before the function is called",
    rule: "what a function wrote before it threw is rolled back",
    way: "joined",
    code: releaseEarly,
  },
  {
    name: "a savepoint of a data source is released before the function is called",
    rule: "what a function wrote before it threw is rolled back",
    way: "effects",
    code: releaseEarly,
  },
  {
    name: "a transaction does not look for its record",
    rule: "a step that is recorded is not executed again",
    way: "joined",
    store: transacting((transact, step, work) =>
      transact(step === null ? null : { ...step, name: `${step.name} of another step` }, work)
    ),
  },
  {
    name: "rows are committed although the store refuses",
    rule: "a refusal rolls everything back",
    way: "joined",
    store: transacting(async (transact, step, work) => {
      try {
        return await transact(step, work);
      } catch (error) {
        if (step !== null || !(error instanceof HoldfastError) || error instanceof WorkError) throw error;
        await transact(null, (tx, ...find) => ({ ...work(tx, ...find) as StoreWrites, signals: [] }));
        throw error;
      }
    }),
  },
  {
    name: "runs are added after the commit of the rows",
    rule: "there is a run if, and only if, the transaction commits",
    way: "joined",
    store: transacting(async (transact, step, work, store, world) => {
      let asked: StoreWrites["runs"] = [];
      const answers = await transact(step, (tx, ...find) => {
        const writes = work(tx, ...find) as StoreWrites;
        asked = writes.runs;
        return { ...writes, runs: [] };
      });
      await world.pass(5);
      return { ...answers, runs: asked.length === 0 ? [] : await store.enqueue(asked) };
    }),
  },
  ...(["effects", "joined"] as const).map((way): BankMutant => ({
    name: `a relay deletes before it adds (${way})`,
    rule: "a row of the outbox stays until its run is there",
    way,
    effects: effectsWith((effects) => ({
      takeRows: async (request) => {
        const rows = await effects.takeRows(request);
        if (rows.length > 0) await effects.deleteRows(rows.map(({ no }) => no));
        return rows;
      },
    })),
  })),
  {
    name: "a relay gives the run another id than that of its row",
    rule: "a row that is relayed twice leads to one run",
    way: "effects",
    effects: effectsWith((effects) => {
      let ids = 0;
      return {
        takeRows: async (request) =>
          (await effects.takeRows(request)).map((row) => ({ ...row, id: `${row.id}-${ids++}` })),
      };
    }),
  },
  {
    name: "effects are swept by their age alone",
    rule: "an effect stays until its run is completed",
    way: "effects",
    effects: effectsWith((effects) => ({
      findOlder: async (...given) => {
        await effects.forget((await effects.findOlder(...given)).map(({ key }) => key));
        return [];
      },
    })),
  },
  {
    name: "a transaction leaves no effect",
    rule: "the effect is in the commit of the rows",
    way: "effects",
    effects: effectsWith((effects) => ({
      transact: async (request) => {
        const answer = await effects.transact(request);
        await effects.forget(request.keys);
        return answer;
      },
    })),
  },
];
