import assert from "node:assert/strict";
import { aGuardedService } from "../../support/http/hostile.ts";
import { aWaitingRun } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";

const LARGE = 100_000;
const ARRAYS = `{"a":[${"[],".repeat(LARGE)}[]]}`;

/** Counts how often a large value is parsed and written while a function runs. */
async function countedOf(work: () => Promise<unknown>): Promise<{ parsed: number; written: number }> {
  const { parse, stringify } = JSON;
  const counts = { parsed: 0, written: 0 };
  Object.assign(JSON, {
    parse: (...given: Parameters<typeof parse>) => {
      if (given[0].length > LARGE) counts.parsed += 1;
      return parse(...given);
    },
    stringify: (...given: Parameters<typeof stringify>) => {
      const text = stringify(...given);
      if (text?.length > LARGE) counts.written += 1;
      return text;
    },
  });
  try {
    await work();
  } finally {
    Object.assign(JSON, { parse, stringify });
  }
  return counts;
}

const READS = ["/explain", "/timeline", "/wait", "/steps", "/waits", "/logs"].map((path) => ["GET", path] as const);

for (const [method, path] of [...READS, ["POST", "/signal"], ["POST", "/cancel"]] as const) {
  Deno.test(`${method} ${path} does not parse a large input that no hook reads`, async () => {
    await using service = aGuardedService({ onOperate: () => {}, onRunAccess: (_caller, run) => void run.labels.org });
    const { runId, query } = await aWaitingRun(service, { input: JSON.parse(ARRAYS) });
    const body = path === "/signal" ? { body: { signalId: "s", payload: 1 } } : {};

    const counts = await countedOf(async () => {
      const { status } = await service.ask(method, `${path}?${query}`, body);
      assert.equal(status, 200, runId);
    });

    assert.deepEqual(counts, { parsed: 0, written: 0 });
  });
}

Deno.test("GET /runs?before= and DELETE /run do not parse a large input that no hook reads", async () => {
  await using service = aGuardedService({ onRunAccess: (_caller, run) => void run.labels.org });
  const { body } = await service.ask("POST", "/trigger", { body: `{"jobName":"echo","input":${ARRAYS}}` });
  await service.engine.runUntilIdle();

  const counts = await countedOf(async () => {
    const listed = await service.ask("GET", `/runs?before=${body.runId}`);
    const deleted = await service.ask("DELETE", `/run?runId=${body.runId}`);
    assert.deepEqual([listed.status, deleted.status], [200, 200]);
  });

  assert.deepEqual(counts, { parsed: 0, written: 0 });
});

Deno.test("POST /trigger parses a large input once, and writes it once, and once as its schema parsed it", async () => {
  const noted = aJob(() => {}, "noted");
  await using service = aGuardedService({ onTrigger: (_caller, trigger) => void trigger.labels }, undefined, { noted });

  const counts = await countedOf(async () => {
    const { status } = await service.ask("POST", "/trigger", { body: `{"jobName":"noted","input":${ARRAYS}}` });
    assert.equal(status, 200);
  });

  assert.deepEqual([counts.parsed, counts.written <= 2], [1, true], JSON.stringify(counts));
});
