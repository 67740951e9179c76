import assert from "node:assert/strict";
import { POSTGRES_URL } from "../support/stores/postgres_store.ts";
import { callCli } from "./call_cli.ts";
import { aFile, aSchema, aServer, cliJobs, fill, type Filled, type StorePlace } from "./places.ts";
import { getRuns, getWaits } from "../../src/store/reads.ts";

/** What is done in each place, in this order. */
const CALLS: readonly ((runs: Filled & { waitId: string }) => string[])[] = [
  () => ["runs"],
  () => ["runs", "--job", "import-csv", "--status", "failed", "--limit", "1"],
  ({ failed }) => ["show", failed],
  ({ waiting }) => ["show", waiting],
  ({ failed }) => ["timeline", failed],
  ({ first }) => ["why", first],
  ({ second }) => ["why", second],
  ({ waiting }) => ["why", waiting],
  () => ["jobs"],
  () => ["workers"],
  () => ["waits"],
  () => ["stats"],
  ({ failed }) => ["tail", failed],
  () => ["pause", "import-csv", "--note", "deploy"],
  () => ["resume", "import-csv"],
  ({ waitId }) => ["signal", waitId, "true"],
  ({ second }) => ["cancel", second],
  () => ["cancel", "--job", "approve", "--dry-run"],
  ({ second }) => ["delete", second, "--yes"],
  () => ["purge", "--older-than", "0s", "--status", "completed", "--yes"],
];

/** The output of every call, with ids and times replaced: those differ from store to store. */
async function callAll(store: StorePlace["store"], args: readonly string[]): Promise<string[]> {
  const filled = await fill(store);
  const waitId = (await getWaits(store, filled.waiting))[0]!.id;
  const outputs: string[] = [];
  for (const call of CALLS) {
    const { code, lines, notes } = await callCli([...call({ ...filled, waitId }), ...args, "--json"]);
    outputs.push(`${code} ${lines.join("\n")} ${notes.filter((note) => !note.includes(" of ")).join("\n")}`);
  }
  return mask(outputs);
}

function mask(outputs: readonly string[]): string[] {
  const ids = new Map<string, string>();
  const idOf = (id: string) => ids.get(id) ?? ids.set(id, `<id ${ids.size}>`).get(id)!;
  return outputs.map((text) =>
    text.replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, idOf)
      .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "<time>")
      .replaceAll(/"(activeMs|duration|sequence|perMinute|p50|p95|p99)":[\d.]+/g, '"$1":0')
      .replaceAll(/\d+ (ms|s|min|h)\b/g, "<time>")
      .replaceAll(/(<time> )+/g, "<time> ")
  );
}

Deno.test("holdfast prints the same JSON on a file and over HTTP", async () => {
  await using file = await aFile();
  await using served = await aFile();
  await using server = await aServer(served.store);

  const [onFile, overHttp] = [await callAll(file.store, file.args), await callAll(served.store, server.args)];

  assert.deepEqual(overHttp, onFile);
  assert.ok(onFile.every((text) => text.startsWith("0 ") || text.startsWith("1 ")), onFile.join("\n"));
});

Deno.test("holdfast retrigger prints the same JSON on a file and over HTTP, and makes the same retries", async () => {
  await using file = await aFile();
  await using served = await aFile();
  await using server = await aServer(served.store, { jobs: cliJobs });
  const retryIn = async (store: StorePlace["store"], args: readonly string[]) => {
    const { failed, completed, first } = await fill(store);
    await callCli(["cancel", first, ...args]);
    const outputs = [];
    for (const options of [[failed], [completed, "--from-start"], [first], [failed], ["--status", "failed", "--yes"]]) {
      const { code, lines } = await callCli(["retrigger", ...options, ...args, "--json"]);
      outputs.push(`${code} ${lines.join("\n")}`);
    }
    const retries = (await getRuns(store, {})).runs.filter(({ retriggerOf }) => retriggerOf !== null);
    const shown = retries.map(({ payload, labels, concurrencyKey, version, priority, status, retriggerOf }) =>
      JSON.stringify({ payload, labels, concurrencyKey, version, priority, status, retriggerOf })
    );
    return mask([...outputs, ...shown]);
  };

  const onFile = await retryIn(file.store, file.args);

  assert.deepEqual(await retryIn(served.store, server.args), onFile);
  assert.equal(onFile.length, 8); // three retries
});

Deno.test({
  name: "PostgresStore: holdfast prints the same JSON as on a file",
  ignore: POSTGRES_URL === undefined,
  async fn() {
    await using file = await aFile();
    await using schema = (await aSchema())!;

    const onFile = await callAll(file.store, file.args);

    assert.deepEqual(await callAll(schema.store, schema.args), onFile);
  },
});
