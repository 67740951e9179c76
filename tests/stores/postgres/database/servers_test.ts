import assert from "node:assert/strict";
import { Servers, StandbyError } from "../../../../src/stores/postgres/database/servers.ts";

Deno.test("Servers reads an address with several hosts: each has its own port, and all the rest", () => {
  const { urls } = new Servers("postgres://app:a%2Cb@first,second:5433,[::1]:5434/jobs?sslmode=require");

  assert.deepEqual(urls, [
    "postgres://app:a%2Cb@first/jobs?sslmode=require",
    "postgres://app:a%2Cb@second:5433/jobs?sslmode=require",
    "postgres://app:a%2Cb@[::1]:5434/jobs?sslmode=require",
  ]);
});

Deno.test("Servers reads a password up to the last @, so that no part of it is taken for a host", () => {
  const { urls } = new Servers("postgres://app:se@cr,et@first,second/jobs");

  assert.deepEqual(urls, ["postgres://app:se@cr,et@first/jobs", "postgres://app:se@cr,et@second/jobs"]);
});

Deno.test("Servers takes the addresses that pg takes", () => {
  for (const url of ["postgres:///jobs", "postgresql://localhost", "/var/run/postgresql jobs", "socket:/tmp?db=jobs"]) {
    assert.deepEqual(new Servers(url).urls, [url]);
  }
});

Deno.test("Servers takes the attributes that it has anyway, and refuses what it would ignore", () => {
  for (const attributes of ["read-write", "primary"]) {
    assert.equal(new Servers(`postgres://a,b/jobs?target_session_attrs=${attributes}`).urls.length, 2);
  }

  for (
    const [parameter, named] of [
      ["target_session_attrs=prefer-standby", /target_session_attrs=prefer-standby/],
      ["load_balance_hosts=random", /"load_balance_hosts"/],
      ["hostaddr=10.0.0.1", /"hostaddr"/],
      ["channel_binding=require", /"channel_binding" in the address: leave it out/],
      ["host=a,b", /before the path/],
    ] as const
  ) {
    assert.throws(() => new Servers(`postgres://app:secret@a/jobs?${parameter}`), (error) => {
      assert.ok(error instanceof TypeError);
      assert.match(error.message, named);
      assert.doesNotMatch(error.message, /secret/);
      return true;
    });
  }
});

Deno.test("Servers refuses a comma with no host beside it, which would mean this machine", () => {
  assert.throws(() => new Servers("postgres://app:secret@a,/jobs"), /^TypeError: .* a comma with no host beside it$/);
});

Deno.test("Servers refuses Aurora DSQL, which looks like PostgreSQL", () => {
  assert.throws(
    () => new Servers("postgres://admin:secret@abc123.dsql.eu-west-1.on.aws/postgres"),
    /^TypeError: PostgresStore does not support Aurora DSQL: it has no PL\/pgSQL/,
  );
});

Deno.test("Servers.connect() asks each server once, and begins with the one that took the last connection", async () => {
  const servers = new Servers("postgres://a,b,c/jobs");
  const asked: string[] = [];
  const takenBy = (host: string) => (url: string) => {
    const name = new URL(url).hostname;
    asked.push(name);
    return name === host ? Promise.resolve(name) : Promise.reject(new StandbyError({ host: name, port: 5432 }));
  };

  assert.equal(await servers.connect(takenBy("c")), "c");
  assert.equal(await servers.connect(takenBy("c")), "c");
  assert.equal(await servers.connect(takenBy("b")), "b");
  await assert.rejects(servers.connect(takenBy("none")), /The server a:5432 is a standby/);

  assert.deepEqual(asked, ["a", "b", "c", "c", "c", "a", "b", "b", "c", "a"]);
});

Deno.test("Servers.leave() goes on to the next server once, though several callers leave the same one", () => {
  const servers = new Servers("postgres://a,b,c/jobs");
  const { url } = servers;

  servers.leave(url);
  servers.leave(url);

  assert.equal(new URL(servers.url).hostname, "b");
});
