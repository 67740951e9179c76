import assert from "node:assert/strict";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { aGuardedService, assertWell, MEMBERS, provoke } from "../../support/http/hostile.ts";
import { aService, aWaitingRun } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";

for (const name of MEMBERS) {
  forEachStore(`a job, a step, a wait, labels and keys may be called ${name}`, async (context) => {
    const job = aJob(async (step) => [await step.run(name, () => name), await step.wait(name)], name);
    await using service = aGuardedService({}, context, { job });
    const labels = `{"${name}":"${name}"}`;
    const body =
      `{"jobName":"${name}","input":{},"labels":${labels},"idempotencyKey":"${name}","concurrencyKey":"${name}"}`;

    const first = await provoke(service, "POST", "/trigger", { body });
    const second = await provoke(service, "POST", "/trigger", { body });
    await service.engine.runUntilIdle();
    const runId = `runId=${first.body.runId}`;
    const waits = await provoke(service, "GET", `/waits?${runId}`);
    const signal = await provoke(service, "POST", `/signal?${runId}&waitId=${waits.body[0].id}`, {
      body: { signalId: name, payload: name },
    });
    await service.engine.runUntilIdle();
    const listed = await provoke(service, "GET", `/runs?jobName=${name}&label.${name}=${name}`);
    const others = await provoke(service, "GET", `/runs?label.${name}=other`);

    assert.deepEqual([first.body.disposition, second.body.disposition], ["created", "idempotent"]);
    assert.deepEqual([signal.body.disposition, waits.body[0].name], ["accepted", name]);
    assert.deepEqual([listed.body.total, others.body.total], [1, 0]);
    assert.equal(JSON.stringify(listed.body.runs[0].labels), labels);
    assert.equal(listed.body.runs[0].output[0], name);
    await assertWell(service);
  });

  Deno.test(`a field or a parameter called ${name} is ignored`, async () => {
    await using service = aService();
    const { runId, query } = await aWaitingRun(service);
    const odd = `"${name}":{"jobName":"fail","idempotencyKey":"k","signalId":"t","status":"failed"}`;
    const parameters = `${name}=1&${name}[runId]=x&${name}.limit=x`;

    const run = await provoke(service, "GET", `/run?runId=${runId}&${parameters}`);
    const runs = await provoke(service, "GET", `/runs?${parameters}`);
    const trigger = await provoke(service, "POST", `/trigger?${parameters}`, {
      body: `{${odd},"jobName":"echo","input":{}}`,
    });
    const signal = await provoke(service, "POST", `/signal?${query}&${parameters}`, {
      body: `{${odd},"signalId":"s","payload":1}`,
    });

    assert.deepEqual([run.body.id, runs.body.total, trigger.body.disposition], [runId, 1, "created"]);
    assert.deepEqual([signal.body.disposition, signal.body.wait.signalId], ["accepted", "s"]);
    assert.equal((await service.engine.getRun(trigger.body.runId))!.idempotencyKey, null);
    await assertWell(service);
  });
}

for (const name of MEMBERS) {
  Deno.test(`a filter by the label ${name} opens nothing that a scope has closed`, async () => {
    await using service = aGuardedService({ scopeRuns: () => ({ labels: { org: "a" } }) });
    await service.engine.trigger("echo", {}, { labels: JSON.parse(`{"org":"b","${name}":"x"}`) });
    await service.engine.trigger("echo", {}, { labels: JSON.parse(`{"org":"a","${name}":"x"}`) });

    const own = await provoke(service, "GET", `/runs?label.${name}=x`);
    const other = await provoke(service, "GET", `/runs?label.${name}=y`);
    const foreign = await provoke(service, "GET", `/runs?label.${name}=x&label.org=b`);

    assert.deepEqual([own.body.total, other.body.total, foreign.body.total], [1, 0, 0]);
  });
}
