import assert from "node:assert/strict";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { aGuardedService, provoke, SIGNAL } from "../../support/http/hostile.ts";
import { aRequest, aService, aWaitingRun } from "../../support/http/http.ts";

forEachStore("POST /trigger finds an idempotencyKey free once its run is deleted", async (context) => {
  await using service = aService({}, context);
  const trigger = () =>
    service.ask("POST", "/trigger", { body: { jobName: "echo", input: {}, idempotencyKey: "once" } });
  const first = await trigger();
  await service.engine.runUntilIdle();
  await service.ask("DELETE", `/run?runId=${first.body.runId}`);

  const second = await trigger();

  assert.equal(second.body.disposition, "created");
  assert.notEqual(second.body.runId, first.body.runId);
});

forEachStore("POST /signal gives the receipt of a prototype only to the same prototype", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);
  const signal = async (payload: string) => {
    const { status, body } = await provoke(service, "POST", `/signal?${query}`, {
      body: `{"signalId":"s","payload":${payload}}`,
    });
    return body.disposition ?? status;
  };

  const answers = [
    await signal('{"__proto__":{"a":1},"10":1,"9":[1.0,-0]}'),
    await signal('{"9":[1,0],"10":1e0,"__proto__":{"a":1}}'),
    await signal('{"10":1,"9":[1,0]}'),
    await signal('{"__proto__":{},"10":1,"9":[1,0]}'),
    await signal('{"__proto__":{"a":1},"10":1,"9":{"0":1,"1":0}}'),
    await signal('{"__proto__":{"a":1},"10":"1","9":[1,0]}'),
  ];

  assert.deepEqual(answers, ["accepted", "duplicate", 409, 409, 409, 409]);
});

forEachStore("POST /signal answers a duplicate byte for byte as it was answered first", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);
  const signal = async () => {
    const response = await service.handler.fetch(aRequest("POST", `/signal?${query}`, { body: SIGNAL }));
    return (await response.text()).replace('"duplicate"', '"accepted"');
  };

  const first = await signal();
  const again = await signal();
  await service.engine.runUntilIdle();
  context.host.advance(60_000);

  assert.deepEqual([again, await signal()], [first, first]);
});

for (const [what, thrown] of Object.entries({ "an Error": new Error("file:///secret"), "nothing": undefined })) {
  forEachStore(
    `POST /signal keeps the wait open if onSignal throws ${what}, and takes the next try`,
    async (context) => {
      let tries = 0;
      await using service = aGuardedService({
        onSignal: () => {
          if (++tries === 1) throw thrown;
        },
      }, context);
      const { waitId, query } = await aWaitingRun(service);

      const first = await service.ask("POST", `/signal?${query}`, { body: SIGNAL });
      const between = (await service.engine.getWait(waitId))!;
      const second = await service.ask("POST", `/signal?${query}`, { body: SIGNAL });

      assert.deepEqual([first.status, first.body], [500, { error: "Internal error", code: "internal" }]);
      assert.deepEqual([between.status, between.signalId], ["pending", null]);
      assert.deepEqual([second.status, second.body.disposition], [200, "accepted"]);
    },
  );
}
