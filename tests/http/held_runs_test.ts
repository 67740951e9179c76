import assert from "node:assert/strict";
import { anything, forEachStore, holdRun } from "../support/stores/for_each_store.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { aService, type Service } from "../support/http/http.ts";
import { CAREFUL } from "../support/http/tenant_hooks.ts";
import { aTenantRun, aTenantService } from "../support/http/tenants.ts";

const echo = defineJob({ name: "echo", input: anything, run: (_step, input) => input });

/** Adds a run of `echo`, and holds it. */
async function addHeld(service: Service, store: Parameters<typeof holdRun>[0], labels = {}): Promise<string> {
  const { id } = await service.engine.trigger(echo, {}, { labels });
  await holdRun(store, "echo", id);
  return id;
}

async function idsOf({ ask }: Service, query: string, headers = {}): Promise<string[]> {
  const { body } = await ask("GET", `/runs?${query}`, { headers });
  return body.runs.map(({ id }: { id: string }) => id);
}

forEachStore("GET /runs?held= lists the runs that are held, or those that are not", async (context) => {
  await using service = aService({}, context);
  const held = await addHeld(service, context.store);
  const { id: due } = await service.engine.trigger(echo, {});

  assert.deepEqual(await idsOf(service, "held=true"), [held]);
  assert.deepEqual(await idsOf(service, "held=false"), [due]);
  assert.deepEqual(await idsOf(service, "held=true&status=failed"), []);
  assert.deepEqual((await service.engine.getRuns({ held: true })).runs.map(({ id }) => id), [held]);
});

forEachStore("held=true lists no run that a tenant may not list", async (context) => {
  const { store } = context;
  await using service = aService({
    auth: {
      authenticate: (request) => request.headers.get("tenant"),
      scopeRuns: (org, filter) => ({ ...filter, labels: { ...filter.labels, org: `${org}` } }),
      onRunAccess: () => {},
      onTrigger: () => {},
    },
  }, context);
  const own = await addHeld(service, store, { org: "acme" });
  await addHeld(service, store, { org: "other" });

  assert.deepEqual(await idsOf(service, "held=true", { tenant: "acme" }), [own]);
  assert.deepEqual(await idsOf(service, "held=true&label.org=other", { tenant: "acme" }), []);
});

forEachStore("a scope that leaves out held runs cannot be widened", async (context) => {
  await using service = aService({
    auth: {
      authenticate: () => null,
      scopeRuns: (_context, filter) => ({ ...filter, held: false }),
      onRunAccess: () => {},
      onTrigger: () => {},
    },
  }, context);
  await addHeld(service, context.store);

  assert.deepEqual([await idsOf(service, "held=true"), await idsOf(service, "")], [[], []]);
});

forEachStore("POST /runs/cancel takes held as a filter", async (context) => {
  await using service = aService({}, context);
  const held = await addHeld(service, context.store);
  await service.engine.trigger(echo, {});

  const { body } = await service.ask("POST", "/runs/cancel", { body: { filter: { held: true } } });
  const { status } = await service.ask("POST", "/runs/cancel", { body: { filter: { held: "true" } } });

  assert.deepEqual([body.matched, body.done, status], [1, 1, 400]);
  assert.equal((await service.engine.getRun(held))?.status, "cancelled");
});

forEachStore("GET /stats, /jobs and /metrics count held runs, and say since when", async (context) => {
  await using service = aService({}, context);
  const { body: none } = await service.ask("GET", "/stats");
  const since = new Date(context.host.now()).toISOString();
  await addHeld(service, context.store);
  context.host.advance(1_000);
  await addHeld(service, context.store);
  await service.engine.trigger("fail", {});
  context.host.advance(1_000);

  const { body: stats } = await service.ask("GET", "/stats");
  const { body: jobs } = await service.ask("GET", "/jobs");
  const { body: text } = await service.ask("GET", "/metrics");

  const held = { runs: 2, since };
  assert.deepEqual([none.held, stats.held], [null, held]);
  for (const list of [stats.jobs, jobs]) {
    assert.deepEqual(
      list.map((job: { jobName: string; held: unknown }) => [job.jobName, job.held]).filter(([, one]: unknown[]) =>
        one
      ),
      [["echo", held]],
    );
  }
  assert.match(text, /^holdfast_runs_held\{job="echo"\} 2\n(?:.*\n)?holdfast_runs_held\{job="fail"\} 0$/m);
});

forEachStore("POST /runs/resume resumes the held runs that a tenant may list and resume", async (context) => {
  const { store } = context;
  const asked: unknown[] = [];
  await using service = aTenantService({
    auth: {
      ...CAREFUL,
      onOperate: (_context, { operation, runOperation }) => void asked.push([operation, runOperation]),
    },
  }, context);
  const own = await aTenantRun(service, store, "a", "held");
  const other = await aTenantRun(service, store, "b", "held");
  const ask = (body: Record<string, unknown>) =>
    service.ask("POST", "/runs/resume", { body, headers: { "x-org": "a" } });

  const dry = await ask({ filter: { held: true }, dryRun: true });
  const all = await ask({ filter: { held: true } });
  const ofOther = await ask({ runIds: [other.runId] });
  const wrong = await ask({ filter: { held: true }, onDivergence: "continue" });

  assert.deepEqual([dry.body.matched, all.body], [1, { matched: 1, done: 1, skipped: [], next: null }]);
  assert.deepEqual(ofOther.body.skipped, [{ runId: other.runId, code: "not_found" }]);
  assert.deepEqual([wrong.status, asked[0]], [400, ["bulk", "resume"]]);
  assert.equal((await service.engine.getRun(own.runId))?.held, null);
  assert.notEqual((await service.engine.getRun(other.runId))?.held, null);
});
