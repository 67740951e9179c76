import assert from "node:assert/strict";
import { aClaimRequest, aFlow, aRun } from "../../../src/testing/contract/fixtures.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { startServer } from "./server.ts";

const server = startServer();

Deno.test({
  name:
    "PostgresStore.claim() fails a bounded number of runs that are late for their start, and says that there is more",
  ignore: server === null,
  async fn() {
    const host = new FakeHost({ seed: 1 });
    await using store = await server!.open(host);
    await store.migrate();
    await store.enqueue(Array.from({ length: 200 }, () => aRun({ flow: aFlow({ startWithin: 1_000 }) })));
    host.advance(1_000);
    const answers: [failed: number, hasMore: boolean][] = [];

    for (let left = 200; left > 0 && answers.length < 10; left -= answers.at(-1)![0]) {
      const { failed, hasMore } = await store.claim(aClaimRequest());
      answers.push([failed.length, hasMore]);
    }

    assert.deepEqual(answers, [[40, true], [40, true], [40, true], [40, true], [40, false]]);
  },
});
