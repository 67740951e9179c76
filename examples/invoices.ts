// deno run -A examples/invoices.ts                      reads the invoices of two customers, within half a minute
// deno run -A examples/invoices.ts --ask                waits for your approval instead of approving the totals itself
// deno run -A examples/invoices.ts --approve <wait id>  approves a total, from another terminal
//
// examples/dashboard.ts shows its runs in a browser.
//
// Kill it at any moment (kill -9) and start it again: it continues where it stopped. It keeps its runs in jobs.db and
// the result in invoices.db, in the folder that you name at the end of the command, or in the current one.

import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import {
  createEngine,
  defineJob,
  NonRetryableError,
  RetryAfterError,
  shutdownOnSignal,
  SqliteStore,
  type Store,
} from "@holdfast/jobs";
import { z } from "zod";

const { values: { ask, stay, approve }, positionals: [folder = "."] } = parseArgs({
  args: import.meta.main ? Deno.args : [], // the arguments are not its own where another program imports it
  allowPositionals: true,
  options: {
    ask: { type: "boolean", default: false },
    stay: { type: "boolean", default: false }, // does not end, so that it executes what the dashboard asks for
    approve: { type: "string" },
  },
});
const HOUR_MS = 60 * 60 * 1_000;
let serviceUrl = "";
let table: ReturnType<typeof openTable>;

/** What each customer has sent. In production it lies in a bucket or a mailbox. */
const INBOX: Record<string, string[]> = {
  acme: Array.from({ length: 20 }, (_, n) => `acme-${n + 1}.pdf`),
  globex: ["globex-1.pdf", "globex-2.pdf", "globex-blank.pdf", "globex-4.pdf", "globex-5.pdf"],
};

/** Reads one document: a child run of its batch. */
const readInvoice = defineJob({
  name: "read-invoice",
  input: z.object({ customer: z.string(), document: z.string() }),
  limits: {
    rate: { limit: 5, period: 1_000 }, // the contract with the service, over all processes and customers
    perKey: { concurrency: 2 }, // of each customer: the concurrency key is the customer
  },
  finishWithin: HOUR_MS,
  retry: { maxAttempts: 10, delay: 500, backoff: "exponential" },
  async run(step, { customer, document }) {
    const { cents } = await step.run("read", ({ abortSignal }) => recognize(document, abortSignal), { timeout: 5_000 });
    // If the process dies after the row was written, but before the step is recorded, this is called again. The key is
    // the same then, so the row is written once.
    await step.run("save", ({ idempotencyKey }) => table.save(idempotencyKey, customer, document, cents));
    say(`${document}: ${euros(cents)}`);
    return { cents };
  },
});

/** Processes what a customer has sent, and has the total approved. */
const processBatch = defineJob({
  name: "process-batch",
  input: z.object({ customer: z.string(), batch: z.string() }),
  finishWithin: 72 * HOUR_MS, // the approval included
  async run(step, { customer, batch }) {
    const documents = await step.run("list", () => INBOX[customer] ?? []);
    const results = await step.invokeAll(
      "read",
      readInvoice,
      documents.map((document) => ({ input: { customer, document }, concurrencyKey: customer })),
    );
    const unreadable = documents.filter((_, n) => results[n]!.status !== "completed");
    const cents = results.reduce((sum, result) => result.status === "completed" ? sum + result.output.cents : sum, 0);

    // The wait exists before anybody is asked, so an early answer is kept.
    const approval = await step.prepareWait("approval", {
      timeout: 48 * HOUR_MS,
      metadata: {
        customer,
        total: euros(cents),
        unreadable: unreadable.join(", ") || "none",
        actions: [{ label: "Approve", payload: { by: "the dashboard" } }], // a button of the dashboard
      },
    });
    await step.run("ask", () => {
      say(`${customer} owes ${euros(cents)}; not readable: ${unreadable.join(", ") || "none"}. Is that right?`);
      if (ask && !stay) say(`Answer with: deno run -A examples/invoices.ts --approve ${approval.id} ${folder}`);
    });
    const answer = await step.waitFor(approval, { schema: z.object({ by: z.string() }) });
    if (answer.outcome === "timeout") throw new Error(`Nobody approved the total of ${customer} within two days`);

    await step.run("post", ({ idempotencyKey }) => table.post(idempotencyKey, customer, batch, cents));
    say(`${customer}: ${euros(cents)} posted, approved by ${answer.payload.by}`);
    return { cents, unreadable };
  },
});

/** Sums up a day. */
const digest = defineJob({
  name: "digest",
  input: z.object({ day: z.iso.date() }),
  async run(step, { day }) {
    return await step.run("mail", () => say(`Digest of ${day}: ${table.sum()}`));
  },
});

/** An engine with these jobs. It executes them once it is started. */
export function invoicesEngine(store: Store) {
  return createEngine({
    store,
    jobs: { processBatch, readInvoice, digest },
    schedules: {
      nightly: {
        job: digest,
        input: ({ localDate }) => ({ day: localDate }),
        cron: "0 2 * * *",
        timezone: "Europe/Berlin",
      },
    },
    fairnessLabel: "customer", // the customers take turns, however much one of them sends
    worker: { heartbeatInterval: 500, staleThreshold: 2_000 }, // short: the runs of a killed process continue soon
    logger: null, // this program prints failures itself
  });
}

type InvoicesEngine = ReturnType<typeof invoicesEngine>;

if (import.meta.main) {
  await Deno.mkdir(folder, { recursive: true });
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  await using engine = invoicesEngine(store);
  if (approve === undefined) await main(engine);
  else await approveTotal(engine, approve, "you");
}

async function main(engine: InvoicesEngine): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  table = cleanup.use(openTable(`${folder}/invoices.db`));
  const service = startService();
  cleanup.defer(() => service.stop());
  cleanup.defer(() => engine.stop()); // before the table is closed
  engine.on("run:fail", ({ jobName, error }) => say(`A run of ${jobName} has failed: ${error}`));
  if (!stay) say(`To see that nothing is lost or done twice: kill -9 ${Deno.pid}, then start this again`);

  const batches: string[] = [];
  for (const customer of Object.keys(INBOX)) {
    // The same key each time: what an earlier process has begun is continued, not begun again.
    const { id, disposition } = await engine.jobs.processBatch.trigger({ customer, batch: "2026-11" }, {
      idempotencyKey: `${customer}/2026-11`,
      labels: { customer },
    });
    batches.push(id);
    if (disposition === "created") {
      say(`${customer} has sent ${INBOX[customer]!.length} documents`);
      continue;
    }
    const { total } = await engine.getRuns({ parentRunId: id, status: "completed", limit: 0 });
    say(`${customer}: the batch of an earlier start, with ${total} documents read already`);
  }

  await engine.start();
  if (stay) return await shutdownOnSignal(engine);
  const approving = ask ? null : setInterval(approveAll, 1_000, engine, batches);
  for (const id of batches) await engine.waitForRun(id);
  if (approving !== null) clearInterval(approving);
  const { id } = await engine.schedules.trigger("nightly"); // now, to show it
  await engine.waitForRun(id);
  say(`The next digest is due at ${(await engine.schedules.get("nightly"))?.nextRuns[0]}`);
  say("All done. Remove jobs.db and invoices.db to begin again");
}

/** Plays the person who approves: answers each wait that is open. */
async function approveAll(engine: InvoicesEngine, batches: readonly string[]): Promise<void> {
  for (const id of batches) {
    for (const wait of await engine.getWaits(id)) {
      if (wait.status === "pending") await approveTotal(engine, wait.id, "the demo");
    }
  }
}

/** The same answer may be sent again: it counts once. */
async function approveTotal(engine: InvoicesEngine, waitId: string, by: string): Promise<void> {
  const { disposition } = await engine.signal(waitId, { signalId: `approval by ${by}`, payload: { by } });
  say(`The approval by ${by} was ${disposition === "accepted" ? "accepted" : "known already"}`);
}

/** Has the service read a document. A service that is busy says when to come again. */
async function recognize(document: string, abortSignal: AbortSignal): Promise<{ cents: number }> {
  const response = await fetch(`${serviceUrl}/${document}`, { signal: abortSignal });
  const body = await response.text();
  if (response.ok) return z.object({ cents: z.number() }).parse(JSON.parse(body));
  if (response.status === 422) throw new NonRetryableError(`${document} cannot be read`);
  const retryAfter = response.headers.get("retry-after");
  say(`${document}: the service answers ${response.status}, and to try again after ${retryAfter ?? "?"} s`);
  throw new RetryAfterError(retryAfter ?? 1_000);
}

/**
 * A service that takes half a second for a document, and at most 3 requests in each second of the clock. It cannot read a
 * blank page the first time: it is scanned again then, so a retry of the run can.
 */
function startService(): { stop(): Promise<void> } {
  let second = 0;
  let requests = 0;
  let isScannedAgain = false;
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, async ({ url }) => {
    const now = Math.floor(Date.now() / 1_000);
    requests = now === second ? requests + 1 : 1;
    second = now;
    if (requests > 3) return new Response("busy", { status: 429, headers: { "retry-after": "1" } });
    await new Promise((resolve) => setTimeout(resolve, 500));
    if (url.endsWith("-blank.pdf") && !isScannedAgain) {
      isScannedAgain = true;
      return new Response("no text", { status: 422 });
    }
    return Response.json({
      cents: [...new URL(url).pathname].reduce((sum, char) => (sum * 31 + char.charCodeAt(0)) % 99_991, 7),
    });
  });
  serviceUrl = `http://127.0.0.1:${server.addr.port}`;
  return { stop: () => server.shutdown() };
}

/** The result: the only place that something must not be in twice. */
function openTable(path: string) {
  const db = new DatabaseSync(path);
  db.exec(`
    CREATE TABLE IF NOT EXISTS invoices (key TEXT PRIMARY KEY, customer TEXT, document TEXT, cents INTEGER);
    CREATE TABLE IF NOT EXISTS postings (key TEXT PRIMARY KEY, customer TEXT, batch TEXT, cents INTEGER);
  `);
  const insert = (name: string) => db.prepare(`INSERT INTO ${name} VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING`);
  const invoices = insert("invoices");
  const postings = insert("postings");
  return {
    save: (key: string, customer: string, document: string, cents: number) =>
      void invoices.run(key, customer, document, cents),
    post: (key: string, customer: string, batch: string, cents: number) =>
      void postings.run(key, customer, batch, cents),
    sum: () => {
      const { n, cents } = db.prepare("SELECT count(*) AS n, total(cents) AS cents FROM invoices").get()!;
      return `${n} invoices, ${euros(Number(cents))}`;
    },
    [Symbol.dispose]: () => db.close(),
  };
}

function euros(cents: number): string {
  return `${(cents / 100).toFixed(2)} €`;
}

function say(text: string): void {
  console.log(`${new Date().toISOString().slice(11, 19)}  ${text}`);
}
