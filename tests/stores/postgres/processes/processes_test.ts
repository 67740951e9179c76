import assert from "node:assert/strict";
import { executeManyRuns } from "./many_runs.ts";
import { storm } from "./storm.ts";
import type { Tally } from "./tally.ts";
import { tortureStreams } from "../../../torture/streams/stream_torture.ts";
import { startServer } from "../server.ts";

// `deno task torture --store postgres --minutes 10` is the same for longer.
const MS = 25_000;
// `deno task torture --store postgres --only "many runs" --runs 10000` are more.
const RUNS = 1_000;
// A storm in which nothing happened proves nothing. Far less than what an idle machine comes to.
const AT_LEAST = {
  "restarts of the server": 1,
  "workers killed": 1,
  "workers suspended": 2,
  "runs triggered": 50,
  "runs cancelled": 1,
  "runs retriggered": 1,
  "runs deleted": 1,
  "runs followed": 1,
  "signals accepted": 1,
};

const server = startServer({ fsync: true, isOwn: true });

Deno.test({
  name: "PostgresStore keeps its promises while processes, connections and the server fail",
  ignore: server === null,
  async fn() {
    const tooFew = (tally: Tally) => Object.entries(AT_LEAST).filter(([what, least]) => tally.get(what) < least);

    const { problems, tally } = await storm(server!, { // ignored without one
      ms: MS,
      seed: 1,
      restartEveryMs: 6_000,
      isEnough: (tally) => tooFew(tally).length === 0,
    });

    assert.deepEqual(problems.slice(0, 20), []);
    assert.deepEqual(tooFew(tally), [], tally.describe());
    assert.ok(tally.get("steps acknowledged") > 100 && tally.get("looks at leases") > 100, tally.describe());
  },
});

Deno.test({
  name: "PostgresStore shows readers of streams no mixture while processes, connections and the server fail",
  ignore: server === null,
  async fn() {
    const schema = `streams_${Deno.pid}`;

    const { problems } = await tortureStreams({
      kind: "postgres",
      url: server!.url, // ignored without one
      schema,
      restart: () => server!.restart(),
    }, { ms: 10_000 });

    assert.deepEqual(problems.slice(0, 20), []);
  },
});

Deno.test({
  name: "PostgresStore lets four processes execute each run once, and those of a key in their order",
  ignore: server === null,
  async fn() {
    const { problems } = await executeManyRuns(server!, RUNS); // ignored without one

    assert.deepEqual(problems.slice(0, 20), []);
  },
});
