import pg from "pg";
import { LIMIT } from "./storm_jobs.ts";

const SAMPLE_EVERY_MS = 5;
// After how many samples it counts the runs that have not ended.
const COUNT_EVERY = 20;

/** Looks over and over whether more runs are under leases than a key or a limit allows. */
export class LeaseSampler implements AsyncDisposable {
  /** How often it has looked. */
  samples = 0;
  /** What must not have been. */
  readonly problems: string[] = [];
  /** How many runs had not ended when it looked last. */
  unfinished = 0;
  readonly #sampling: Promise<void>;
  #isOver = false;

  /** Begins at once. It waits while the server is restarted. */
  constructor(url: string, schema: string) {
    const leased = `select * from ${schema}.runs
      where status = 'running' and lease_expires_at > extract(epoch from clock_timestamp()) * 1000`;
    this.#sampling = this.#sample(
      url,
      `with leased as materialized (${leased})
       select 'key ' || concurrency_key as what, count(*)::int as count from leased
         where concurrency_key is not null group by 1 having count(*) > 1
       union all select 'job limited', count(*)::int from leased where job = 'limited' having count(*) > ${LIMIT}`,
      `select count(*)::int as count from ${schema}.runs where status in ('pending', 'running', 'waiting')`,
    );
  }

  /** Ends it. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    await this.#sampling;
  }

  async #sample(url: string, tooMany: string, unfinished: string): Promise<void> {
    while (!this.#isOver) {
      const client = await connect(url).catch(() => null); // the server is starting
      try {
        while (client !== null && !this.#isOver) {
          this.#look((await client.query(tooMany)).rows);
          if (this.samples % COUNT_EVERY === 0) this.unfinished = (await client.query(unfinished)).rows[0].count;
          await new Promise((resolve) => setTimeout(resolve, SAMPLE_EVERY_MS));
        }
      } catch {
        // The server was restarted.
      }
      await client?.end().catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, SAMPLE_EVERY_MS));
    }
  }

  #look(rows: { what: string; count: number }[]): void {
    this.samples += 1;
    for (const { what, count } of rows) this.problems.push(`${count} runs of ${what} were under leases at once`);
  }
}

/** Connects to a server. */
export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {}); // what is asked next fails
  await client.connect();
  return client;
}
