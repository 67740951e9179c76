import assert from "node:assert/strict";
import { ValidationError } from "../../../src/model/error.ts";
import { isoTime } from "../../../src/values/iso_time.ts";
import { divergenceMessage } from "../../../src/execution/replay/divergence_message.ts";
import { addHeld } from "../../../src/testing/contract/claims/holds/arrange_holds.ts";
import { FAKE_START } from "../../support/fake_host.ts";
import { aService } from "../../support/http/http.ts";
import { CAREFUL } from "../../support/http/tenant_hooks.ts";
import { aTenantService } from "../../support/http/tenants.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const charge = { kind: "step", name: "charge" } as const;
const renamed = divergenceMessage({
  code: "diverged",
  isNew: { kind: "step", name: 'charge "v2"' },
  thrown: null,
  unasked: [charge],
});
const added = divergenceMessage({
  code: "diverged",
  isNew: { kind: "wait", name: "ok" },
  thrown: null,
  unasked: [charge],
});
const ended = (id: number) =>
  divergenceMessage({ code: "ended_early", isNew: null, thrown: { error: new Error(`no ${id}`) }, unasked: [charge] });

forEachStore("getHeld() groups held runs by job and message, with what to do", async ({ store, host }) => {
  const ids = [];
  for (let i = 0; i < 4; i++) {
    ids.push(await addHeld(store, {}, { code: "ended_early", message: ended(i) }));
    host.advance(1_000);
  }
  const other = await addHeld(store, { jobName: "export" }, { message: renamed });
  const third = await addHeld(store, {}, { message: added });
  await using engine = createEngine({ store, host, jobs: {} });

  const { groups, examined } = await engine.getHeld();
  const ofExport = await engine.getHeld({ jobName: "export" });

  const [first, last] = [isoTime(FAKE_START), isoTime(FAKE_START + 4_000)];
  const diverged = { code: "diverged", count: 1, since: last };
  const elseSee = "added, removed, or what the job decides outside of its steps";
  const remedy =
    `If "charge" was renamed, say changes: { renamed: { "charge": "charge \\"v2\\"" } }; else see ${elseSee}`;
  assert.equal(examined, 6);
  assert.deepEqual(groups, [
    {
      jobName: "import-csv",
      code: "ended_early",
      message: ended(3),
      remedy: null,
      count: 4,
      since: first,
      runIds: ids.toReversed().slice(0, 3),
    },
    { jobName: "import-csv", message: added, remedy: `See ${elseSee}`, runIds: [third], ...diverged },
    { jobName: "export", message: renamed, remedy, runIds: [other], ...diverged },
  ]);
  assert.deepEqual(ofExport, { groups: groups.slice(2), examined: 1 });
  await assert.rejects(engine.getHeld({ jobName: "" }), ValidationError);
  await assert.rejects(engine.getHeld({ job: "x" } as never), TypeError);
});

forEachStore("GET /held answers what getHeld() does, of the runs that a tenant may read", async (context) => {
  const { store } = context;
  const own = await addHeld(store, { labels: { org: "a" } });
  await addHeld(store, { labels: { org: "b" } });
  await using service = aService({}, context);
  await using ofTenants = aTenantService({ auth: CAREFUL }, context);

  const { body } = await service.ask("GET", "/held?jobName=import-csv");
  const ofA = await ofTenants.ask("GET", "/held", { headers: { "x-org": "a" } });

  assert.deepEqual(body, await service.engine.getHeld());
  assert.deepEqual([ofA.body.examined, ofA.body.groups[0].runIds], [1, [own]]);
});
