import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import type { Labels } from "../../../src/model/run.ts";
import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aRun } from "../../support/fixtures.ts";
import { aService } from "../../support/http/http.ts";

// How long a list takes shows what it looks at. It may show nothing of the runs of others.

type Scope = NonNullable<HandlerAuth<unknown>["scopeRuns"]>;

/** Everything that a database is asked for a list, with its parameters, and what it answers. */
async function lookUps(
  { scopeRuns, query, others }: { scopeRuns: Scope; query: string; others: { jobName: string; labels: Labels }[] },
): Promise<{ asked: unknown[]; total: number; calls: number }> {
  const host = new FakeHost();
  using database = new DatabaseSync(":memory:");
  const asked: unknown[] = [];
  const driver: SqliteDriver = {
    exec: (sql) => database.exec(sql),
    prepare: (sql) => {
      const statement = database.prepare(sql);
      const ask = (method: "get" | "all") => (...parameters: (string | number | null)[]) => {
        const answer = statement[method](...parameters);
        asked.push([sql, parameters, JSON.stringify(answer)]);
        return answer;
      };
      return { run: (...parameters) => statement.run(...parameters), get: ask("get"), all: ask("all") as never };
    },
  };
  await using store = await SqliteStore.from(driver, { host });
  await store.migrate();
  const own = [0, 1, 2].map((n) => ({
    id: `own-${n}`,
    jobName: "own",
    labels: { org: "a", team: "x", 1: n === 0 ? "rare" : "y" },
  }));
  await store.enqueue([...own, ...others].map((run) => aRun(run)));
  let calls = 0;
  await using service = aService({
    auth: {
      authenticate: () => {},
      onRunAccess: () => {},
      scopeRuns: (context, filter) => {
        calls += 1;
        return scopeRuns(context, filter);
      },
    },
  }, { store, host });
  asked.length = 0;

  const { body } = await service.ask("GET", `/runs?${query}`);

  return { asked: [...asked], total: body.total, calls };
}

const byLabel: Scope = (_context, filter) => ({ ...filter, labels: { ...filter.labels, org: "a" } });
const byJob: Scope = (_context, filter) => ({ ...filter, jobName: "own" });

const byTwo: Scope = (_context, filter) => ({ ...filter, labels: { ...filter.labels, 1: "y", org: "a" } });

const CASES: { that: string; scopeRuns: Scope; query: string; total: number; calls: number }[] = [
  { that: "asks for a label", scopeRuns: byLabel, query: "label.team=x", total: 3, calls: 1 },
  { that: "asks for a label that is a number", scopeRuns: byLabel, query: "label.1=rare", total: 1, calls: 1 },
  { that: "asks for several labels", scopeRuns: byLabel, query: "label.1=rare&label.team=x", total: 1, calls: 1 },
  { that: "asks for a label that it does not use", scopeRuns: byLabel, query: "label.team=z", total: 0, calls: 1 },
  { that: "asks for its own label, too", scopeRuns: byLabel, query: "label.1=rare&label.org=a", total: 1, calls: 2 },
  { that: "asks for the label of another", scopeRuns: byLabel, query: "label.org=b", total: 0, calls: 2 },
  { that: "is known by two labels", scopeRuns: byTwo, query: "label.team=x", total: 2, calls: 1 },
  { that: "is known by a job, and asks for another", scopeRuns: byJob, query: "jobName=other", total: 0, calls: 1 },
  {
    that: "asks for a label and a status",
    scopeRuns: byLabel,
    query: "label.team=x&status=pending",
    total: 3,
    calls: 1,
  },
  { that: "is known by a job, and asks for a label", scopeRuns: byJob, query: "label.team=x", total: 3, calls: 1 },
  {
    that: "is known by a job, and asks for it and a label",
    scopeRuns: byJob,
    query: "label.1=rare&jobName=own",
    total: 1,
    calls: 2,
  },
];

for (const { that, scopeRuns, query, total, calls } of CASES) {
  Deno.test(`GET /runs looks at nothing of the runs of others when a tenant ${that}`, async () => {
    const others = Array.from({ length: 2_000 }, () => ({
      jobName: "other",
      labels: { org: "b", team: query.includes("z") ? "z" : "x", 1: "rare" },
    }));

    const alone = await lookUps({ scopeRuns, query, others: [] });
    const among = await lookUps({ scopeRuns, query, others });

    assert.deepEqual(among, alone);
    assert.deepEqual([among.total, among.calls], [total, calls]);
  });
}

Deno.test("GET /runs looks at the other labels of a run only at the run", async () => {
  using database = new DatabaseSync(":memory:");
  const plans: string[] = [];
  const driver: SqliteDriver = {
    exec: (sql) => database.exec(sql),
    prepare: (sql) => {
      if (sql.includes("holdfast_labels o")) {
        const parameters = Array.from(sql.matchAll(/\?/g), () => null);
        const plan = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters);
        plans.push(...plan.map(({ detail }) => String(detail)).filter((detail) => / o /.test(detail)));
      }
      return database.prepare(sql) as never;
    },
  };
  await using store = await SqliteStore.from(driver);
  await store.migrate();
  await store.enqueue([aRun({ labels: { org: "a", team: "x" } })]);

  await store.findRuns({ labels: { org: "a", team: "x" }, scope: { labels: ["org"], jobs: false } });

  assert.ok(plans.length > 0);
  assert.deepEqual(plans.filter((detail) => !/\(key=\? AND value=\? AND run_seq=\?\)/.test(detail)), []);
});

Deno.test("GET /runs begins with the rarest label where all runs are everybody's", async () => {
  const everything: Scope = (_context, filter) => filter;
  const others = Array.from({ length: 20 }, () => ({ jobName: "other", labels: { team: "x", org: "b" } }));

  const { asked, calls } = await lookUps({ scopeRuns: everything, query: "label.team=x&label.1=rare", others });

  const walks = asked.map((one) => one as [string, unknown[]]).filter(([sql]) => sql.includes("AS matches"));
  assert.deepEqual(walks.map(([_sql, parameters]) => parameters.slice(0, 4)), [["team", "x", "1", "rare"]]);
  assert.equal(calls, 1);
});
