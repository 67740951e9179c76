import assert from "node:assert/strict";
import { uuidV7 } from "../../../src/model/host.ts";
import type { Store } from "../../../src/store/store.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { aGuardedService, INTERNALS, ownBody, ownQuery, provoke, routesOfRuns } from "../../support/http/hostile.ts";
import { aRequest, aService, aWaitingRun } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";

/** A store that notes what it is asked. */
function aNotingStore(store: Store): { store: Store; calls: string[] } {
  const calls: string[] = [];
  const noting = new Proxy(store, {
    get: (target, name) => {
      const member = target[name as keyof Store];
      if (typeof member !== "function") return member;
      return (...given: unknown[]) => {
        calls.push(String(name));
        return (member as (...given: unknown[]) => unknown).apply(target, given);
      };
    },
  });
  return { store: noting, calls };
}

for (const [name, { method, path }] of routesOfRuns) {
  forEachStore(`${method} ${path} (${name}) asks the store as much for a foreign run as for none`, async (context) => {
    const { store, calls } = aNotingStore(context.store);
    await using service = aGuardedService({
      onOperate: () => {},
      onRunAccess: (_context, { labels }) => {
        if (labels.org !== "a") {
          throw new Response('{"error":"There is no such run","code":"not_found"}', { status: 404 });
        }
      },
    }, { ...context, store });
    const { runId, waitId } = await aWaitingRun(service);
    const ask = async (run: string, wait: string) => {
      calls.length = 0;
      const { status } = await service.ask(
        method,
        `${path}?runId=${run}&waitId=${wait}${ownQuery(name)}`,
        ownBody(name),
      );
      return { status, calls: [...calls] };
    };

    const foreign = await ask(runId, waitId);
    const missing = await ask(uuidV7(0), waitId);
    const noWait = await ask(runId, uuidV7(0));

    assert.deepEqual(foreign, { status: 404, calls: ["readRuns"] });
    assert.deepEqual([missing, noWait], [foreign, foreign]);
  });
}

forEachStore(
  "GET /run, /steps and /logs show of an error its message, and nothing of where it was thrown",
  async (context) => {
    const breaks = aJob(async (step) => {
      await step.run("cause", () => {
        throw new Error("no rows", { cause: new TypeError("hidden cause") });
      });
    }, "breaks");
    await using service = aService({}, context, { breaks });
    const { id } = await service.engine.trigger("breaks", {});
    await service.engine.runUntilIdle();

    const answers = await Promise.all(
      ["run", "steps", "waits", "logs"].map((path) => provoke(service, "GET", `/${path}?runId=${id}`)),
    );
    const stream = await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`));
    const texts = [...answers.map(({ body }) => JSON.stringify(body)), await stream.text()];

    assert.match(texts[0]!, /no rows/);
    for (const text of texts) {
      assert.doesNotMatch(text, INTERNALS);
      assert.doesNotMatch(text, /hidden cause|disclosure_test|stack/);
    }
  },
);

forEachStore("GET /run answers every guess alike", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", {});
  const guesses = Array.from({ length: 1_000 }, () => context.host.newId());

  const answers = new Set<string>();
  for (const guess of guesses) {
    const { status, headers, body } = await provoke(service, "GET", `/run?runId=${guess}`);
    answers.add(`${status} ${[...headers]} ${JSON.stringify(body).replace(guess, "?")}`);
  }

  assert.ok(!guesses.includes(id));
  assert.equal(answers.size, 1);
  assert.match([...answers][0]!, /^404 /);
});
