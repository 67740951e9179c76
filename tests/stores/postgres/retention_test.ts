import assert from "node:assert/strict";
import pg from "pg";
import { growAndPurge, LANES } from "../../../bench/postgres/grow_and_purge.ts";
import { newDatabase } from "../../../bench/postgres/new_database.ts";
import { startServer } from "./server.ts";

const server = startServer();

// What a deleted run leaves: its id for ten minutes and its facts for an hour. The others have a few rows in any case.
const KEPT = ["counts", "deleted", "journal", "journal_start", "schema_version", "server", "serving", "workers"];

Deno.test({
  name: "retention leaves no row of a run behind, in any table of PostgresStore",
  ignore: server === null,
  fn: async () => {
    await using database = await newDatabase(server!.url); // ignored without a server
    const growths = await Array.fromAsync(growAndPurge({ url: database.url, runs: 800, kept: 0 }));
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();

    const { rows: tables } = await client.query<{ name: string }>(
      "select table_name as name from information_schema.tables where table_schema = 'holdfast' order by 1",
    );
    // A row of each job and one of the leases, if claims have read many dead entries.
    const { rows: starts } = await client.query("delete from holdfast.scan_starts returning scope");
    const used: string[] = [];
    for (const { name } of tables) {
      const { rows: [row] } = await client.query(`select exists (select from holdfast.${name}) as used`);
      if (row.used) used.push(name);
    }

    await client.end();
    assert.ok(starts.length <= LANES + 1, JSON.stringify(starts));
    assert.deepEqual(used, KEPT);
    assert.deepEqual(growths.map(({ left }) => left), growths.map(() => 0));
    assert.equal(growths.at(-1)?.ended, 800);
  },
});
