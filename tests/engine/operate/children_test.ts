import assert from "node:assert/strict";
import { NotFoundError, ValidationError } from "../../../src/model/error.ts";
import { isTerminal, type RunFilter } from "../../../src/model/run.ts";
import type { RunQuery } from "../../../src/store/run_query.ts";
import type { Store } from "../../../src/store/store.ts";
import { park } from "../../../src/testing/contract/arrange.ts";
import { aHold } from "../../../src/testing/contract/fixtures.ts";
import {
  aChild,
  claimAll,
  endAs,
  onChildren,
  startParent,
} from "../../../src/testing/contract/records/children/arrange_children.ts";
import { aService } from "../../support/http/http.ts";
import { CAREFUL } from "../../support/http/tenant_hooks.ts";
import { aTenantService } from "../../support/http/tenants.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { withCalls } from "../../support/stores/with_calls.ts";
import { createEngine } from "../../support/quiet_engine.ts";

/** What becomes of the children of {@linkcode addParent}, in the order in which they are triggered. */
const FATES = ["completed", "failed", "held", "running", "completed", "cancelled", "failed", "pending"] as const;

/** Adds a parent with a child for each of {@linkcode FATES}. */
async function addParent(
  store: Store,
  labels = {},
): Promise<{ runId: string; ids: string[]; of: (fate: (typeof FATES)[number]) => string[] }> {
  const { lease } = await startParent(store, { labels });
  const children = FATES.map(() => aChild({ labels }));
  await park(store, lease, onChildren(children));
  const { claims } = await claimAll(store, { limit: FATES.length - 1 });
  for (const [at, { lease }] of claims.entries()) {
    const fate = FATES[at]!; // a claim for each but the last
    if (fate === "held") await store.hold(lease, aHold(), []);
    else if (fate !== "running" && fate !== "pending") await endAs(store, lease, fate);
  }
  const ids = children.map(({ id }) => id);
  return { runId: lease.runId, ids, of: (fate) => ids.filter((_, at) => FATES[at] === fate).reverse() };
}

const idsOf = ({ children }: { children: readonly { id: string }[] }) => children.map(({ id }) => id);

forEachStore("getChildren() counts the children of a run, and lists first those to act on", async ({ store, host }) => {
  const { runId, of } = await addParent(store);
  await park(store, (await startParent(store)).lease, onChildren([aChild(), aChild()]));
  await using engine = createEngine({ store, host, jobs: {} });

  const { children, byStatus, ...rest } = await engine.getChildren(runId);

  const counts = { pending: 2, leased: 0, running: 1, waiting: 0, completed: 2, failed: 2, cancelled: 1 };
  assert.deepEqual([rest, byStatus], [{ runId, total: 8, held: 1, executedAgain: null, next: null }, counts]);
  const order = ["failed", "held", "running", "pending", "cancelled", "completed"] as const;
  assert.deepEqual(children.map(({ id }) => id), order.flatMap(of));
  assert.ok(children.every((child) => child.parentRunId === runId && !("input" in child) && !("output" in child)));
});

forEachStore("getChildren() reads pages: each child once, whatever the size of a page", async ({ store, host }) => {
  const { runId } = await addParent(store);
  await using engine = createEngine({ store, host, jobs: {} });
  const all = idsOf(await engine.getChildren(runId));

  for (const limit of [1, 2, 3, 7, 8]) {
    const pages: string[][] = [];
    for (let cursor: string | undefined, isLast = false; !isLast;) {
      const page = await engine.getChildren(runId, { limit, ...(cursor === undefined ? {} : { cursor }) });
      pages.push(idsOf(page));
      isLast = page.next === null;
      cursor = page.next ?? undefined;
    }
    assert.deepEqual(pages.flat(), all);
    assert.ok(pages.every((page) => page.length > 0 && page.length <= limit), JSON.stringify(pages));
  }
});

forEachStore("getChildren() lists those with a status or that are held, and counts all", async ({ store, host }) => {
  const { runId, of } = await addParent(store);
  await using engine = createEngine({ store, host, jobs: {} });

  const failed = await engine.getChildren(runId, { status: "failed" });
  const held = await engine.getChildren(runId, { held: true });
  const others = await engine.getChildren(runId, { status: ["pending", "cancelled"], held: false });
  const none = await engine.getChildren(runId, { status: [] });

  assert.deepEqual([idsOf(failed), failed.total], [of("failed"), 8]);
  assert.deepEqual(idsOf(held), of("held"));
  assert.deepEqual(idsOf(others), [...of("pending"), ...of("cancelled")]);
  assert.deepEqual([idsOf(none), none.next], [[], null]);
});

forEachStore(
  "getChildren() says how many children a retry from the failure executes again",
  async ({ store, host }) => {
    const { runId, ids } = await addParent(store);
    await store.cancel(runId, "request-1", null);
    await claimAll(store); // cancels the children that have not ended
    await using engine = createEngine({ store, host, jobs: {} });

    const { total, byStatus, executedAgain } = await engine.getChildren(runId);

    assert.deepEqual([total, byStatus!.completed, executedAgain], [ids.length, 2, ids.length - 2]);
    assert.ok((await engine.getChildren(runId)).children.every(({ status }) => isTerminal(status)));
  },
);

forEachStore("getChildren() of a run without children is empty, and of no run is refused", async ({ store, host }) => {
  const { lease: { runId } } = await startParent(store);
  await using engine = createEngine({ store, host, jobs: {} });

  const { total, children, next } = await engine.getChildren(runId);

  assert.deepEqual([total, children, next], [0, [], null]);
  await assert.rejects(engine.getChildren("none"), NotFoundError);
  for (const query of [{ limit: 0 }, { limit: 1_001 }, { cursor: "x" }, { status: "odd" as never }]) {
    await assert.rejects(engine.getChildren(runId, query), ValidationError);
  }
  await assert.rejects(engine.getChildren(runId, { parent: "x" } as never), TypeError);
});

forEachStore("getChildren() reads no more runs than it lists", async ({ store, host }) => {
  const { runId } = await addParent(store);
  const read: number[] = [];
  const listed: number[] = [];
  const counting = withCalls(store, {
    readRuns: (ids, maxLength) => (read.push(ids.length), store.readRuns(ids, maxLength)),
    findRuns: async (query) => {
      const found = await store.findRuns(query);
      listed.push(found.ids.length);
      return found;
    },
  });
  await using engine = createEngine({ store: counting, host, jobs: {} });

  await engine.getChildren(runId, { limit: 2 });

  assert.deepEqual(read, [1, 2]); // the parent, and the page
  assert.equal(listed.reduce((sum, ids) => sum + ids, 0), 2);
});

forEachStore("getChildren() counts to the end what a store counts in parts, and counts nothing for a page", async ({
  store,
  host,
}) => {
  const { runId } = await addParent(store);
  const pages: RunQuery[] = [];
  const countingLittle = withCalls(store, {
    findRuns: (query) => {
      if (query.limit !== 0) pages.push(query);
      return store.findRuns({ countUpTo: 1, ...query });
    },
  });
  await using engine = createEngine({ store: countingLittle, host, jobs: {} });

  const { total, byStatus } = await engine.getChildren(runId);

  assert.deepEqual([total, byStatus!.completed, byStatus!.failed], [8, 2, 2]);
  assert.deepEqual(pages.map(({ countUpTo }) => countUpTo), pages.map(() => 0));
  assert.ok(pages.length > 0);
});

forEachStore("GET /children answers what getChildren() does", async (context) => {
  const { runId, of } = await addParent(context.store);
  await using service = aService({}, context);

  const all = await service.ask("GET", `/children?runId=${runId}`);
  const failed = await service.ask("GET", `/children?runId=${runId}&status=failed&status=running&held=false&limit=2`);
  const wrong = await Promise.all(
    ["", "&limit=0", "&held=yes", "&status=odd", "&cursor=9.9.9"].map((more, at) =>
      service.ask("GET", `/children?runId=${at === 0 ? "none" : runId}${more}`)
    ),
  );

  assert.deepEqual(all.body, await service.engine.getChildren(runId));
  assert.deepEqual([idsOf(failed.body), failed.body.next], [of("failed"), "2"]);
  assert.deepEqual(wrong.map(({ status }) => status), [404, 400, 400, 400, 400]);
});

forEachStore("GET /children shows and counts only children that a tenant may list and read", async (context) => {
  const { store } = context;
  const { lease } = await startParent(store, { labels: { org: "a" } });
  const own = [aChild({ labels: { org: "a" } }), aChild({ labels: { org: "a", secret: "yes" } })];
  await park(store, lease, onChildren([...own, aChild({ labels: { org: "b" } })]));
  const auth = {
    ...CAREFUL,
    onRunAccess: (context: { org: string }, run: { labels: { secret?: string } }) => {
      CAREFUL.onRunAccess!(context, run as never, { operation: "read" });
      if (run.labels.secret !== undefined) throw new Response(null, { status: 403 });
    },
  };
  await using service = aTenantService({ auth }, context);
  const asked = (org: string) => service.ask("GET", `/children?runId=${lease.runId}`, { headers: { "x-org": org } });

  const [ofA, ofB] = [await asked("a"), await asked("b")];

  assert.deepEqual([idsOf(ofA.body), ofA.body.total], [[own[0]!.id], 2]);
  assert.notEqual(ofB.status, 200);
});

forEachStore("GET /children counts nothing if nobody says which runs the caller may list", async (context) => {
  const { store } = context;
  const { lease } = await startParent(store, { labels: { org: "a" } });
  const own = aChild({ labels: { org: "a" } });
  await park(store, lease, onChildren([own, aChild({ labels: { org: "b" } })]));
  const { scopeRuns: _, ...auth } = CAREFUL;
  await using service = aTenantService({ auth }, context);

  const { body } = await service.ask("GET", `/children?runId=${lease.runId}`, { headers: { "x-org": "a" } });

  const { children: _children, ...rest } = body;
  assert.deepEqual(idsOf(body), [own.id]);
  assert.deepEqual(rest, {
    runId: lease.runId,
    total: null,
    byStatus: null,
    held: null,
    executedAgain: null,
    next: null,
  });
});

forEachStore(
  "GET /children does not say what a retry executes again to callers who may list only some states",
  async (context) => {
    const { store } = context;
    const { runId, ids } = await addParent(store);
    await store.cancel(runId, "request-1", null);
    await claimAll(store); // cancels the children that have not ended
    const executedAgain = async (scope: RunFilter) => {
      const auth = {
        authenticate: () => ({}),
        onRunAccess: () => {},
        scopeRuns: (_: object, filter: RunFilter) => ({ ...filter, ...scope }),
      };
      await using service = aService({ auth }, context);
      return (await service.ask("GET", `/children?runId=${runId}`)).body.executedAgain;
    };

    assert.equal(await executedAgain({}), ids.length - 2);
    assert.equal(await executedAgain({ createdAfter: "2000-01-01T00:00:00Z" }), ids.length - 2);
    assert.equal(await executedAgain({ status: ["failed", "completed"] }), null);
    assert.equal(await executedAgain({ retried: false }), null);
  },
);

forEachStore("explain() of a run that waits for a held child says what that child is held for", async (context) => {
  const { store } = context;
  const { lease } = await startParent(store, { labels: { org: "a" } });
  const children = Array.from({ length: 3 }, (_, at) => aChild({ labels: { org: at === 1 ? "b" : "a" } }));
  await park(store, lease, onChildren(children));
  const { claims } = await claimAll(store);
  await using service = aTenantService({ auth: CAREFUL }, context);
  const message = 'step "frames" is new';
  const hold = { ...aHold(), message: `Held: ${message}` };

  await store.hold(claims[1]!.lease, hold, []);
  const { reasons: [first, second] } = await service.engine.explain(lease.runId);
  const { body } = await service.ask("GET", `/explain?runId=${lease.runId}`, { headers: { "x-org": "a" } });
  await store.hold(claims[0]!.lease, hold, []);
  const both = await service.engine.explain(lease.runId);

  const runId = children[1]!.id;
  assert.deepEqual(first, {
    kind: "held_child",
    runId,
    jobName: "child",
    code: "diverged",
    since: (await service.engine.getRun(runId))!.held!.since,
    count: 1,
    message: `Its child child ${runId} is held: ${message}`,
  });
  assert.equal(second!.kind, "child");
  assert.deepEqual(body.reasons[0], {
    kind: "held_child",
    runId: null,
    jobName: null,
    code: null,
    since: null,
    count: 1,
    message: "A child run is held",
  });
  assert.equal(both.message, `Its child child ${runId} and 1 other run are held: ${message}`);
});
