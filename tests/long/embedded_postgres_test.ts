import assert from "node:assert/strict";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { concurrencyCases } from "../../src/testing/contract/flow/concurrency.ts";
import { deadlineCases } from "../../src/testing/contract/flow/deadlines.ts";
import { delayCases } from "../../src/testing/contract/flow/delays.ts";
import { fairnessCases } from "../../src/testing/contract/flow/fairness.ts";
import { jobPauseCases } from "../../src/testing/contract/flow/job_pauses.ts";
import { limitCases } from "../../src/testing/contract/flow/limits.ts";
import { priorityCases } from "../../src/testing/contract/flow/priorities.ts";
import { rateCases } from "../../src/testing/contract/flow/rates.ts";
import { scheduleCases } from "../../src/testing/contract/flow/schedules.ts";
import { addressCases } from "../../src/testing/contract/records/messages/addresses.ts";
import { inboxCases } from "../../src/testing/contract/records/messages/inbox.ts";
import { receiveCases } from "../../src/testing/contract/records/messages/receive.ts";
import { sendCases } from "../../src/testing/contract/records/messages/send.ts";
import { streamCases } from "../../src/testing/contract/records/streams.ts";
import { transactionCases } from "../../src/testing/contract/records/transactions.ts";
import { endCases } from "../../src/testing/contract/runs/ends.ts";
import { retryChainCases } from "../../src/testing/contract/runs/retry_chains.ts";
import { FakeHost } from "../../src/testing/fake_host.ts";
import { emptyServer } from "../simulation/pglite.ts";
import { SentKeys } from "../stores/sent_keys.ts";
import { USES } from "../stores/uses_of_postgres.ts";

/** The cases of the contract whose rules are written in PL/pgSQL for the most part. */
const CASES = [
  ...concurrencyCases,
  ...deadlineCases,
  ...delayCases,
  ...fairnessCases,
  ...jobPauseCases,
  ...limitCases,
  ...priorityCases,
  ...rateCases,
  ...scheduleCases,
  ...addressCases,
  ...inboxCases,
  ...receiveCases,
  ...sendCases,
  ...streamCases,
  ...endCases,
  ...retryChainCases,
  ...transactionCases,
];

const sent = new SentKeys();

/** A store without runs, of the server of this thread; its tables are made. */
async function openStore(host: FakeHost): Promise<PostgresStore> {
  const { client, schema } = await emptyServer();
  return PostgresStore.from(sent.watch(client), { schema, durability: "relaxed", host });
}

// PGlite starts timers of its own, of up to 10 seconds, which would be taken for leaks.
const options = { sanitizeOps: false, sanitizeResources: false };

Deno.test(
  "a PostgresStore that needs no server keeps the rules of flow, messages, streams and ends, and executes each function",
  options,
  async (t) => {
    const { client, schema } = await emptyServer();
    await client.exec("set track_functions = 'all'; select pg_stat_reset();");
    for (const { title, body } of CASES) {
      await t.step(title, async () => {
        const host = new FakeHost();
        await using store = await openStore(host);
        await body({ store, host });
      });
    }
    for (const [title, use] of Object.entries(USES)) {
      await t.step(title, async () => {
        const host = new FakeHost();
        await using store = await openStore(host);
        await use(store, host);
      });
    }

    // A claim calls these if it has read many dead entries.
    await client.exec(`select "${schema}".may_note_starts_v1('{a}', 1), "${schema}".note_starts_v1('{a}', 1)`);
    // What is in PL/pgSQL is checked when it is executed, and not before.
    const { rows } = await client.query<{ name: string }>(`
    select p.proname as name from pg_proc p join pg_language l on l.oid = p.prolang
    left join pg_stat_user_functions f on f.funcid = p.oid
    where p.pronamespace = '${schema}'::regnamespace and l.lanname = 'plpgsql' and f.calls is null order by 1`);
    assert.deepEqual(rows, []);
    // A key that nobody sends is NULL, and no error.
    assert.deepEqual(sent.findUnsent(), []);
  },
);
