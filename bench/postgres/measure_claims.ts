import { PostgresStore } from "@holdfast/jobs/postgres";
import pg from "pg";
import { uuidV7 } from "../../src/model/host.ts";
import { aClaimRequest, aRun } from "../../tests/support/fixtures.ts";
import { percentile } from "../statistics.ts";
import { newDatabase } from "./new_database.ts";
import { type Stock, stockSql } from "./stock.ts";

const EACH = 100;

/** What is measured. */
export interface ClaimsOptions {
  /** The address of the server. */
  url: string;
  /** What the database is full of; `null`: nothing. */
  stock: Stock | null;
  /** How many of these. */
  count: number;
  /** How many claims of 100 runs each session makes. */
  claims: number;
}

/**
 * Measures claims in a full database.
 *
 * @returns How long a claim of 100 runs takes, in milliseconds: in a session that has made its plans when all tables were
 * empty, and in one that begins after the tables are full and analyzed.
 */
export async function measureClaims({ url, stock, count, claims }: ClaimsOptions): Promise<number[]> {
  await using database = await newDatabase(url);
  await using early = await PostgresStore.open(database.url);
  await early.migrate();
  await timeClaims(early, 3);
  if (stock !== null) {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    try {
      await client.query(stockSql(stock, count));
    } finally {
      await client.end();
    }
  }
  const planned = await timeClaims(early, claims);
  await using late = await PostgresStore.open(database.url);
  await timeClaims(late, 3);
  return [planned, await timeClaims(late, claims)];
}

/** How long claims take, each of which takes what is due: one in ten is faster, since other processes only add to it. */
async function timeClaims(store: PostgresStore, count: number): Promise<number> {
  const workerId = crypto.randomUUID();
  const times: number[] = [];
  for (let n = 0; n < count; n++) {
    await store.enqueue(Array.from({ length: EACH }, () => aRun({ id: uuidV7(Date.now()) })));
    const startedAt = performance.now();
    const { claims } = await store.claim(aClaimRequest({ workerId, claimId: crypto.randomUUID(), limit: EACH }));
    times.push(performance.now() - startedAt);
    if (claims.length !== EACH) throw new Error(`A claim took ${claims.length} runs`);
    const ending = { status: "completed", output: null, durationMs: 0 } as const;
    await Promise.all(claims.map(({ lease }) => store.finish(lease, ending, [])));
  }
  return percentile(times, 0.1);
}
