import assert from "node:assert/strict";
import { EventReader } from "../../support/http/event_reader.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import {
  aGuardedService,
  assertWell,
  ownBody,
  ownQuery,
  provoke,
  routesOfRuns,
  SIGNAL,
} from "../../support/http/hostile.ts";
import { aRequest, aService, aWaitingRun } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";

for (const [name, { method, path }] of routesOfRuns) {
  forEachStore(
    `${method} ${path} (${name}) survives that its run is deleted while onRunAccess takes its time`,
    async (context) => {
      const asked = Promise.withResolvers<void>();
      const allowed = Promise.withResolvers<void>();
      await using service = aGuardedService({
        onOperate: () => {},
        onRunAccess: () => {
          asked.resolve();
          return allowed.promise;
        },
      }, context);
      const { runId, query } = await aWaitingRun(service);
      await service.engine.cancel(runId);

      const answering = service.handler.fetch(aRequest(method, `${path}?${query}${ownQuery(name)}`, ownBody(name)));
      await asked.promise;
      await service.engine.deleteRun(runId);
      allowed.resolve();
      const response = await answering;
      const text = await response.text();

      // What was read before may still be shown; a stream reads its run after the hook.
      assert.equal(response.status, name === "run" ? 200 : 404);
      if (name !== "run") assert.deepEqual(Object.keys(JSON.parse(text)), ["error", "code"]);
      assert.deepEqual(service.heard, []);
      assert.equal((await service.engine.getRuns()).total, 0);
      await assertWell(service);
    },
  );
}

forEachStore("POST /cancel answers 409 if the run ends while onRunAccess takes its time", async (context) => {
  await using service = aGuardedService({ onRunAccess: () => service.engine.runUntilIdle() }, context);
  const { id } = await service.engine.trigger("echo", {});

  const { status, body } = await provoke(service, "POST", `/cancel?runId=${id}`);

  assert.deepEqual([status, body.code], [409, "conflict"]);
  assert.equal((await service.engine.getRun(id))!.status, "completed");
});

forEachStore(
  "GET /subscribe loses no end that comes while onRunAccess takes its time, and tells it once",
  async (context) => {
    await using service = aGuardedService({ onRunAccess: () => service.engine.runUntilIdle() }, context);
    const { id } = await service.engine.trigger("echo", {});

    await using reader = new EventReader(await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`)));
    await context.host.settle();

    assert.deepEqual([reader.types, reader.isEnded], [["run:complete"], true]);
  },
);

forEachStore("POST /signal answers 409 for a wait whose run has failed, and does not revive it", async (context) => {
  const breaks = aJob(async (step) => {
    await step.prepareWait("review");
    throw new Error("broken");
  }, "breaks");
  await using service = aService({}, context, { breaks });
  const { id } = await service.engine.trigger("breaks", {});
  await service.engine.runUntilIdle();
  const [wait] = await service.engine.getWaits(id);

  const { status, body } = await provoke(service, "POST", `/signal?runId=${id}&waitId=${wait!.id}`, { body: SIGNAL });
  await service.engine.runUntilIdle();

  assert.deepEqual([status, body.code], [409, "conflict"]);
  assert.equal((await service.engine.getRun(id))!.status, "failed");
  assert.equal((await service.engine.getWait(wait!.id))!.status, "closed");
});

forEachStore("POST /signal answers 404 if the run is deleted before the signal is stored", async (context) => {
  await using service = aGuardedService({
    onSignal: async (_context, { id }) => {
      await service.engine.cancel(id);
      await service.engine.deleteRun(id);
    },
  }, context);
  const { query } = await aWaitingRun(service);

  const { status, body } = await provoke(service, "POST", `/signal?${query}`, { body: SIGNAL });

  assert.deepEqual([status, body.code], [404, "not_found"]);
  assert.equal((await service.engine.getRuns()).total, 0);
});

forEachStore("POST /signal answers 410 if the deadline passes while onSignal takes its time", async (context) => {
  await using service = aGuardedService({ onSignal: () => context.host.advance(60_000) }, context, {}, {
    host: new FakeHost(),
  });
  const { waitId, query } = await aWaitingRun(service);

  const { status, body } = await provoke(service, "POST", `/signal?${query}`, { body: SIGNAL });

  assert.deepEqual([status, body.code], [410, "wait_expired"]);
  assert.equal((await service.engine.getWait(waitId))!.outcome, "timeout");
});

forEachStore("POST /signal and a worker that come at the deadline tell one outcome", async (context) => {
  await using service = aService({}, context);
  const { runId, waitId, query } = await aWaitingRun(service);
  context.host.advance(60_000);

  const [signal] = await Promise.all([
    provoke(service, "POST", `/signal?${query}`, { body: SIGNAL }),
    service.engine.runUntilIdle(),
  ]);
  await service.engine.runUntilIdle();

  assert.equal(signal.status, 410);
  assert.equal((await service.engine.getWait(waitId))!.outcome, "timeout");
  assert.deepEqual((await service.engine.getRun(runId))!.output, { outcome: "timeout" });
});
