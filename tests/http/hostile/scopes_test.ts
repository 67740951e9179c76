import assert from "node:assert/strict";
import type { Run, RunFilter } from "../../../src/model/run.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { aGuardedService, provoke } from "../../support/http/hostile.ts";
import { aRequest } from "../../support/http/http.ts";

const SCOPES: Record<string, unknown> = {
  "a hundred thousand job names and a wrong one": { jobName: [...Array(100_000).fill("echo"), ""] },
  "a limit that is no number": { limit: "all" },
  "an offset in labels": { labels: { a: 1 } },
  "a status that there is not": { status: "any" },
  "a promise of nothing": Promise.resolve(),
  "a proxy that throws": new Proxy({}, {
    get: () => {
      throw new Error("file:///secret");
    },
  }),
};

for (const [what, scope] of Object.entries(SCOPES)) {
  Deno.test(`GET /runs and GET /runs/subscribe answer 500, and show nothing, if a scope is ${what}`, async () => {
    await using service = aGuardedService({ scopeRuns: () => scope as RunFilter });
    await service.engine.trigger("echo", {});

    const answers = [await service.ask("GET", "/runs"), await service.ask("GET", "/runs/subscribe")];

    for (const { status, body } of answers) {
      assert.deepEqual([status, body], [500, { error: "Internal error", code: "internal" }]);
    }
    assert.equal(service.heard.length, 2);
  });
}

Deno.test("GET /runs shows nothing if scope and client together ask for more labels than a run can have", async () => {
  const labels = Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`k${n}`, "v"]));
  const own = Object.fromEntries(Object.entries(labels).slice(15));
  const query = Object.keys(labels).slice(0, 16).map((key) => `label.${key}=v`).join("&");
  await using service = aGuardedService({
    scopeRuns: (_context, filter) => ({ ...filter, labels: { ...filter.labels, ...own, org: "a" } }),
  });
  await service.engine.trigger("echo", {}, { labels });

  const list = await provoke(service, "GET", `/runs?${query}`);
  const stream = await service.handler.fetch(aRequest("GET", `/runs/subscribe?${query}`));
  await stream.body!.cancel();

  assert.deepEqual([list.status, list.body.total, stream.status], [200, 0, 200]);
  assert.deepEqual(service.heard, []);
});

forEachStore(
  "GET /runs lists what the client asked for, though scopeRuns changes its copy of the filter",
  async (context) => {
    const meddling: ((filter: RunFilter) => void)[] = [
      (filter) => Reflect.set(filter.labels!, "org", "b"),
      (filter) => Reflect.deleteProperty(filter, "labels"),
      (filter) => (filter.jobName as string[]).push("fail"),
      (filter) => Object.assign(filter, { jobName: "fail", status: "failed", limit: 7 }),
    ];
    let meddle = meddling[0]!;
    await using service = aGuardedService({ scopeRuns: (_context, filter) => (meddle(filter), filter) }, context);
    for (const org of ["a", "b"]) {
      for (const jobName of ["echo", "fail"]) await service.engine.trigger(jobName, {}, { labels: { org } });
    }

    const shown = [];
    for (meddle of meddling) {
      const { body } = await provoke(service, "GET", "/runs?jobName=echo&jobName=approval&label.org=a");
      shown.push(body.runs.map(({ jobName, labels }: Run) => `${jobName} of ${labels.org}`));
    }

    assert.deepEqual(shown, [[], ["echo of a"], ["echo of a"], []]);
  },
);
