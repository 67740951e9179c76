import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { POSTGRES_URL } from "../support/stores/postgres_store.ts";
import { getSteps } from "../../src/store/reads.ts";
import { startRun } from "../../src/testing/contract/arrange.ts";
import { addHeld } from "../../src/testing/contract/claims/holds/arrange_holds.ts";
import { callCli } from "./call_cli.ts";
import { type Damage, DAMAGES, fillForDamage, STUCK } from "./damages.ts";
import { aFile, aSchema, aServer } from "./places.ts";

const NOT_LOOKED_FOR = "What is stuck was not looked for: the tables are damaged";
const ignore = POSTGRES_URL === undefined;

Deno.test("SqliteStore: holdfast doctor finds nothing in a database that is in use", async () => {
  await using file = await aFile();
  await fillForDamage(file.store);

  const { code, lines, notes } = await callCli(["doctor", ...file.args]);

  assert.deepEqual([code, lines], [0, []], lines.join("\n"));
  assert.match(notes[0]!, /^Nothing is wrong: \d+ checks$/);
});

for (const [name, open] of [["SqliteStore", aFile], ["PostgresStore", aSchema]] as const) {
  Deno.test({
    name: `${name}: holdfast doctor finds nothing in a run that was cancelled while two steps were executed`,
    ignore: ignore && open === aSchema,
    async fn() {
      await using place = (await open())!;
      const { lease } = await startRun(place.store);
      const steps = ["charge", "mail"].map((name, index) => ({ name, index, attempts: 1, startedAgoMs: 5 }));
      await place.store.cancel(lease.runId, "request-1", { lease, steps, reports: [] });

      const { code, lines } = await callCli(["doctor", ...place.args]);

      assert.deepEqual([code, lines], [0, []]);
      assert.deepEqual((await getSteps(place.store, lease.runId)).map(({ status }) => status), [
        "cancelled",
        "cancelled",
      ]);
    },
  });
}

for (const damage of [...DAMAGES, ...STUCK]) {
  Deno.test(`SqliteStore: holdfast doctor finds ${damage.name}`, async () => {
    await using file = await aFile();
    const runs = await fillForDamage(file.store);
    const database = new DatabaseSync(file.path, { enableForeignKeyConstraints: false });
    database.exec(damage.sql(runs).replaceAll("T.", "holdfast_"));
    database.close();

    const called = await callCli(["doctor", ...file.args, "--json"]);

    assertFound(called, damage);
    assert.equal(called.notes.includes(NOT_LOOKED_FOR), !STUCK.includes(damage));
  });

  Deno.test({
    name: `PostgresStore: holdfast doctor finds ${damage.name}`,
    ignore,
    async fn() {
      await using place = (await aSchema())!;
      const runs = await fillForDamage(place.store);
      const client = new pg.Client({ connectionString: POSTGRES_URL });
      await client.connect();
      await client.query(damage.sql(runs).replaceAll("T.", `${place.args.at(-1)}.`));
      await client.end();

      assertFound(await callCli(["doctor", ...place.args, "--json"]), damage);
    },
  });
}

function assertFound(
  { code, json }: { code: number; json: { kind: string; message: string }[] },
  damage: Damage,
): void {
  const kind = STUCK.includes(damage) ? "stuck" : "damage";
  assert.equal(code, 1);
  assert.ok(json.some((finding) => finding.kind === kind && damage.found.test(finding.message)), JSON.stringify(json));
}

Deno.test("SqliteStore: holdfast doctor finds held runs", async () => {
  await using file = await aFile();
  const runId = await addHeld(file.store, { jobName: "approve" }, { message: 'step "pay" is new' });

  const { code, json } = await callCli(["doctor", ...file.args, "--json"]);

  const message = new RegExp(`^Run ${runId} of approve is held since .*: step "pay" is new$`);
  assert.deepEqual([code, json.map(({ kind }) => kind)], [1, ["stuck"]]);
  assert.match(json[0]!.message, message);
});

Deno.test("SqliteStore: holdfast doctor finds a damaged page", async () => {
  await using file = await aFile();
  await fillForDamage(file.store);
  const copy = `${file.path}.damaged`;
  await callCli(["backup", copy, ...file.args]);
  const database = new DatabaseSync(copy);
  const { page } = database.prepare("SELECT rootpage - 1 AS page FROM sqlite_schema WHERE name = ?")
    .get("holdfast_labels_by_run") as { page: number };
  database.close();
  const bytes = await Deno.readFile(copy);
  bytes.fill(0xff, page * 4096, (page + 1) * 4096);
  await Deno.writeFile(copy, bytes);

  const { code, json, notes } = await callCli(["doctor", "--store", copy, "--json"]);

  assert.equal(code, 1, notes.join());
  assert.ok(json.some(({ kind }) => kind === "damage"), JSON.stringify(json));
});

Deno.test("SqliteStore: holdfast doctor --repair counts again, and changes nothing else", async () => {
  await using file = await aFile();
  const runs = await fillForDamage(file.store);
  const database = new DatabaseSync(file.path);
  for (const at of [0, 1]) database.exec(DAMAGES[at]!.sql(runs).replaceAll("T.", "holdfast_"));
  database.close();

  const { code, json } = await callCli(["doctor", "--repair", ...file.args, "--json"]);

  assert.equal(code, 1);
  assert.ok(json.length > 0 && json.every(({ message }) => /^K1 is broken/.test(message)), JSON.stringify(json));
});

Deno.test({
  name: "PostgresStore: holdfast doctor finds nothing in a database that is in use, and --repair counts again",
  ignore,
  async fn() {
    await using place = (await aSchema())!;
    const runs = await fillForDamage(place.store);
    const before = await callCli(["doctor", ...place.args]);
    const client = new pg.Client({ connectionString: POSTGRES_URL });
    await client.connect();
    await client.query(DAMAGES[0]!.sql(runs).replaceAll("T.", `${place.args.at(-1)}.`));
    await client.end();

    const after = await callCli(["doctor", "--repair", ...place.args]);

    assert.deepEqual([before.code, before.lines, after.code, after.lines], [0, [], 0, []]);
  },
});

Deno.test("holdfast doctor refuses a service, whose tables it cannot read", async () => {
  await using file = await aFile();
  await using server = await aServer(file.store);

  assert.equal((await callCli(["doctor", ...server.args])).code, 2);
});
