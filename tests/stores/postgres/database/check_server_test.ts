import assert from "node:assert/strict";
import { StoreError } from "../../../../src/model/error.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";

const VERSIONS = [
  ["CockroachDB", "CockroachDB CCL v24.1.2 (x86_64-pc-linux-gnu, built 2024/07/01 20:44:38, go1.22.4)"],
  ["YugabyteDB", "PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 16.0.6, 64-bit"],
  ["YugabyteDB", "PostgreSQL 15.2-YB-2025.1.0.0-b168 on x86_64-pc-linux-gnu, compiled by clang, 64-bit"],
] as const;

for (const [engine, version] of VERSIONS) {
  Deno.test(`migrate() refuses ${version.slice(0, 25)}, and sends it nothing else`, async () => {
    const asked: string[] = [];
    const client = {
      query: (sql: string) => {
        asked.push(sql);
        return Promise.resolve({ rows: [{ r: version }] });
      },
    };
    await using store = PostgresStore.from(client);

    const migrated = store.migrate();

    await assert.rejects(migrated, (error) => {
      assert.ok(error instanceof StoreError);
      assert.match(error.message, new RegExp(`^PostgresStore does not support ${engine}: `));
      return error.code === "internal";
    });
    assert.equal(asked.length, 1);
    assert.match(asked[0]!, /^select pg_catalog\.version\(\) /);
  });
}

Deno.test("migrate() refuses a database whose encoding lacks characters", async () => {
  const r = "PostgreSQL 15.14 on x86_64 standard_conforming_strings=on server_encoding=LATIN1";
  await using store = PostgresStore.from({ query: () => Promise.resolve({ rows: [{ r }] }) });

  const migrated = store.migrate();

  await assert.rejects(migrated, (error) => {
    assert.ok(error instanceof StoreError);
    assert.match(error.message, /^The encoding of the database is LATIN1, which lacks characters /);
    return error.code === "internal";
  });
});

Deno.test("migrate() goes on with PostgreSQL and PGlite", async () => {
  for (
    const version of [
      "PostgreSQL 15.14 on x86_64 standard_conforming_strings=on server_encoding=UTF8",
      "PostgreSQL 15.14 on x86_64 standard_conforming_strings=on server_encoding=SQL_ASCII",
      "PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64",
      "PostgreSQL 18.6 (PGlite 0.5.16) on wasm32",
    ]
  ) {
    const asked: string[] = [];
    await using store = PostgresStore.from({
      query: (sql: string) => {
        asked.push(sql);
        return Promise.resolve({ rows: [{ r: version }] });
      },
    });

    await store.migrate();

    assert.equal(asked.length, 3); // its version, whether commits wait for the disk, and the migration
  }
});
