import assert from "node:assert/strict";
import type { Enqueued } from "../../../../src/store/new_run.ts";
import { aLine, aRun } from "../../../support/fixtures.ts";
import { startServer } from "../server.ts";
import { getLogs } from "../../../../src/store/reads.ts";

const server = startServer();

Deno.test({
  name: "PostgresStore: appendLogs() keeps the order of calls that are made at the same moment",
  ignore: server === null,
  async fn() {
    await using store = await server!.open(); // ignored without a server
    await store.migrate();
    const [{ run }] = await store.enqueue([aRun()]) as [Enqueued];
    const messages = Array.from({ length: 250 }, (_, n) => `line ${n}`);

    await Promise.all(messages.map((message) => store.appendLogs([aLine(run.id, { message })])));

    assert.deepEqual((await getLogs(store, run.id)).map(({ message }) => message), messages);
  },
});
