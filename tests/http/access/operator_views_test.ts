import assert from "node:assert/strict";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { CAREFUL, type Org } from "../../support/http/tenant_hooks.ts";
import { aTenantRun, aTenantService } from "../../support/http/tenants.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";

const of = (org: string) => ({ headers: { "x-org": org } });
const OPERATED: HandlerAuth<Org> = { ...CAREFUL, onOperate: () => {} };

forEachStore("GET /stats and /jobs name the oldest due run of a job to those who may read it", async (world) => {
  await using service = aTenantService({ auth: OPERATED }, world);
  const { runId } = await aTenantRun(service, world.store, "a", "pending");
  const dueSince = new Date(world.host.now()).toISOString();

  for (const [org, named] of [["a", runId], ["b", null]] as const) {
    const stats = await service.ask("GET", "/stats", of(org));
    const jobs = await service.ask("GET", "/jobs", of(org));

    for (const seen of [stats.body.jobs, jobs.body]) {
      const { oldestDue } = seen.find(({ jobName }: { jobName: string }) => jobName === "order");
      assert.deepEqual(oldestDue, { runId: named, dueSince });
    }
  }
});

forEachStore("POST /jobs/pause and /resume name no run that the caller may not read", async (world) => {
  await using service = aTenantService({ auth: OPERATED }, world);
  const { runId } = await aTenantRun(service, world.store, "a", "pending");

  for (const [org, named] of [["a", runId], ["b", null]] as const) {
    for (const path of ["/jobs/pause?jobName=order", "/jobs/resume?jobName=order"]) {
      const { status, body } = await service.ask("POST", path, of(org));

      assert.deepEqual([status, body.oldestDue.runId], [200, named], path);
    }
  }
});

forEachStore("POST /jobs/pause answers what it has done, although onRunAccess() fails", async (world) => {
  const onRunAccess = () => Promise.reject(new Error("the database of rights is gone"));
  await using service = aTenantService({ auth: { ...OPERATED, onRunAccess } }, world);
  await aTenantRun(service, world.store, "a", "pending");

  const { status, body } = await service.ask("POST", "/jobs/pause?jobName=order", of("a"));

  assert.deepEqual([status, body.paused === null, body.oldestDue.runId], [200, false, null]);
});

forEachStore("GET /stats and /jobs name runs where no onRunAccess() decides who reads them", async (world) => {
  const { onRunAccess: _, ...auth } = OPERATED;
  await using service = aTenantService({ auth }, world);
  const { runId } = await aTenantRun(service, world.store, "a", "pending");

  const { body } = await service.ask("GET", "/jobs", of("b"));

  assert.equal(body.find(({ jobName }: { jobName: string }) => jobName === "order").oldestDue.runId, runId);
});
