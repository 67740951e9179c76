import assert from "node:assert/strict";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { StoreError } from "../../../src/model/error.ts";
import { createHandler } from "../../../src/http/handler.ts";
import type { HandlerOptions } from "../../../src/http/handler_options.ts";
import type { OpenStream } from "../../../src/http/streams/streams.ts";
import { formatCursor } from "../../../src/model/journal.ts";
import { EventReader } from "../../support/http/event_reader.ts";
import { withCalls } from "../../support/stores/with_calls.ts";
import { forEachStore, pass } from "../../support/stores/for_each_store.ts";
import { aRequest, aService, type Service } from "../../support/http/http.ts";
import { recordEncoded } from "../../support/http/streams.ts";

/** Each tenant sees the runs with its own label. */
const AUTH: HandlerAuth<{ org: string }> = {
  authenticate: (request) => ({ org: request.headers.get("x-org")! }),
  tenant: ({ org }) => Promise.resolve(org),
  onTrigger: () => {},
  onRunAccess: () => {},
  scopeRuns: ({ org }, filter) => ({ ...filter, labels: { ...filter.labels, org } }),
};

function open({ handler }: Pick<Service, "handler">, path: string, org = ""): Promise<Response> {
  return handler.fetch(aRequest("GET", path, { headers: { "x-org": org } }));
}

async function follow(service: Pick<Service, "handler">, path: string, org?: string): Promise<EventReader> {
  const response = await open(service, path, org);
  assert.equal(response.status, 200);
  return new EventReader(response);
}

function sequencesOf({ events }: EventReader): number[] {
  return events.map(({ sequence }) => sequence);
}

forEachStore("limits.maxStreamsPerTenant bounds the streams of each tenant", async (context) => {
  await using service = aService({ auth: AUTH, limits: { maxStreamsPerTenant: 2 } }, context);
  const { id } = await service.engine.trigger("approval", 1);
  const subscribe = `/subscribe?runId=${id}`;
  const readers = [await follow(service, subscribe, "a"), await follow(service, "/runs/subscribe", "a")];

  const refused = [await open(service, subscribe, "a"), await open(service, "/runs/subscribe", "a")];
  readers.push(await follow(service, subscribe, "b"), await follow(service, "/runs/subscribe", "b"));
  await readers[0]!.leave();
  readers.push(await follow(service, "/runs/subscribe", "a"));
  const again = await open(service, subscribe, "a");

  for (const response of [...refused, again]) {
    assert.equal(response.status, 429);
    assert.match(response.headers.get("retry-after")!, /^[1-9]\d*$/);
    assert.deepEqual(await response.json(), {
      error: "At most 2 event streams can be open",
      code: "too_many_streams",
    });
  }
  for (const reader of readers) await reader.leave();
  assert.equal(context.host.timerCount, 0);
});

forEachStore("limits.maxStreamsPerTenant makes room however a stream ends", async (context) => {
  await using service = aService({
    auth: AUTH,
    limits: { maxStreamsPerTenant: 1, maxStreamMs: 5_000 },
  }, context);
  const { id } = await service.engine.trigger("echo", 1);

  const left = await follow(service, `/subscribe?runId=${id}`, "a");
  await left.leave();
  const over = await follow(service, `/subscribe?runId=${id}`, "a");
  await service.engine.runUntilIdle();
  await over.ended;
  const tooLong = await follow(service, "/runs/subscribe", "a");
  await pass(context.host, 5_000, 1_000);
  await tooLong.ended;
  const closed = await follow(service, "/runs/subscribe", "a");
  service.handler.closeStreams(() => true);
  await closed.ended;
  const last = await follow(service, "/runs/subscribe", "a");

  const { status } = await open(service, "/runs/subscribe", "a");
  assert.equal(status, 429);
  await last.leave();
  assert.equal(context.host.timerCount, 0);
});

forEachStore("limits.maxStreamsPerTenant counts nobody without auth.tenant", async (context) => {
  const limits = { maxStreamsPerTenant: 0 };
  await using open = aService({ limits }, context);
  await using nameless = aService({ limits, auth: { ...AUTH, tenant: undefined } }, context);

  for (const service of [open, nameless]) await (await follow(service, "/runs/subscribe", "a")).leave();
});

forEachStore("numbers of events in one tenant's streams do not count those of others", async (context) => {
  await using service = aService({ auth: AUTH }, context);
  const { engine } = service;
  const trigger = async (org: string) => (await engine.trigger("approval", 1, { labels: { org } })).id;
  await using a = await follow(service, "/runs/subscribe", "a");
  await using b = await follow(service, "/runs/subscribe", "b");
  await context.host.settle();

  const ids = [];
  for (const org of ["b", "a", "b", "b", "a"]) ids.push(await trigger(org));
  await using ofRun = await follow(service, `/subscribe?runId=${ids[1]}`, "a");
  await context.host.settle();
  await engine.runUntilIdle();
  await context.host.settle();

  assert.deepEqual(sequencesOf(a), a.events.map((_, at) => at + 1));
  assert.deepEqual(sequencesOf(b), b.events.map((_, at) => at + 1));
  assert.deepEqual([a.events.length, b.events.length], [2 * 4, 3 * 4]);
  assert.deepEqual([sequencesOf(ofRun), ofRun.types], [[1, 2, 3], ["run:leased", "run:start", "run:waiting"]]);
});

forEachStore("numbers rise in each stream of a run, however late its reader comes", async (context) => {
  await using service = aService({ auth: AUTH }, context);
  const { id } = await service.engine.trigger("approval", 1);
  const path = `/subscribe?runId=${id}`;
  await using early = await follow(service, path, "a");
  await context.host.settle();
  await service.engine.runUntilIdle();
  await context.host.settle();

  await using late = await follow(service, path, "b");
  await context.host.settle();
  await service.engine.cancel(id);
  await Promise.all([early.ended, late.ended]);

  assert.deepEqual(early.types, ["run:leased", "run:start", "run:waiting", "run:cancel"]);
  assert.deepEqual(sequencesOf(early), [1, 2, 3, 4]);
  assert.deepEqual([late.types, sequencesOf(late)], [["run:waiting", "run:cancel"], [1, 2]]);
});

forEachStore("an event is encoded once for the streams of all tenants", async (context) => {
  await using service = aService({ auth: { ...AUTH, scopeRuns: (_context, filter) => filter } }, context);
  const readers: EventReader[] = [];
  for (let n = 0; n < 20; n++) readers.push(await follow(service, "/runs/subscribe", `tenant ${n % 4}`));
  await context.host.settle();

  const encoded = await recordEncoded(async () => {
    await service.engine.trigger("echo", 1, { labels: { org: "needle" } });
    await context.host.settle();
  });

  assert.ok(readers.every((reader) => reader.types.join() === "run:trigger" && sequencesOf(reader).join() === "1"));
  assert.equal(encoded.filter((text) => text.includes("needle")).length, 1);
  for (const reader of readers) await reader.leave();
});

forEachStore("limits.maxStreamMs ends each stream after so long, and its client may come back", async (context) => {
  const { host } = context;
  await using service = aService({ limits: { maxStreamMs: 60_000 } }, context);
  const { id } = await service.engine.trigger("approval", 1);
  const paths = [`/subscribe?runId=${id}`, "/runs/subscribe"];
  const readers = [];
  for (const path of paths) readers.push(await follow(service, path));
  await pass(host, 30_000, 1_000);
  for (const path of paths) readers.push(await follow(service, path));

  await pass(host, 29_999, 1_000);
  const before = readers.map(({ isEnded }) => isEnded);
  await pass(host, 1);
  const after = readers.map(({ isEnded }) => isEnded);
  await pass(host, 30_000, 1_000);
  const last = readers.map(({ isEnded }) => isEnded);

  assert.deepEqual([before, after, last], [
    [false, false, false, false],
    [true, true, false, false],
    [true, true, true, true],
  ]);
  assert.equal(host.timerCount, 0);
});

forEachStore("limits.maxStreamMs does not wait for a reader who does not read", async (context) => {
  const { host } = context;
  await using service = aService({ limits: { maxStreamMs: 60_000, maxStreams: 1 } }, context);
  const response = await open(service, "/runs/subscribe");
  for (let n = 0; n < 10; n++) await service.engine.trigger("echo", n);
  await host.settle();

  await pass(host, 60_000, 1_000);
  const next = await follow(service, "/runs/subscribe"); // there is room for it
  await next.leave();

  assert.equal(host.timerCount, 0);
  assert.equal(await response.text(), "");
});

forEachStore(
  "limits.maxStreamMs ends a stream whose store fails, and its client is told later that it has all",
  async (context) => {
    const { host, store } = context;
    let fails = false;
    const failing = withCalls(store, {
      getRunState: (id) => fails ? Promise.reject(new StoreError("The disk is full")) : store.getRunState(id),
    });
    await using service = aService({ limits: { maxStreamMs: 60_000, maxStreams: 1 } }, { ...context, store: failing });
    const { id } = await service.engine.trigger("echo", 1);
    await service.engine.runUntilIdle();
    const path = `/subscribe?runId=${id}&lastEventId=${formatCursor((await store.findCursor(null))!)}`;

    fails = true;
    const asked = open(service, path);
    await host.settle();
    await pass(host, 60_000, 1_000);
    const over = await asked;
    fails = false;
    const whole = await open(service, path); // there is room for it

    assert.deepEqual([over.status, await over.text(), whole.status], [200, "", 204]);
    assert.equal(host.timerCount, 0);
  },
);

forEachStore("limits.maxStreamMs leaves no timer behind when a stream ends before", async (context) => {
  await using service = aService({ limits: { maxStreamMs: 2 ** 40 } }, context);
  const { id } = await service.engine.trigger("echo", 1);
  const readers = [await follow(service, `/subscribe?runId=${id}`), await follow(service, "/runs/subscribe")];
  await context.host.settle();

  await readers[1]!.leave();
  await service.engine.runUntilIdle();
  await readers[0]!.ended;

  assert.equal(context.host.timerCount, 0);
});

for (const maxStreamMs of [undefined, Infinity]) {
  forEachStore(`event streams do not end if limits.maxStreamMs is ${maxStreamMs}`, async (context) => {
    await using service = aService({ limits: { maxStreamMs } }, context);
    await using reader = await follow(service, "/runs/subscribe");

    await pass(context.host, 86_400_000, 3_600_000);

    assert.equal(reader.isEnded, false);
  });
}

forEachStore("closeStreams() shows each open stream, and ends those that are chosen", async (context) => {
  await using service = aService({ auth: AUTH }, context);
  const { handler } = service;
  const { id } = await service.engine.trigger("approval", 1);
  const readers = [
    await follow(service, `/subscribe?runId=${id}`, "a"),
    await follow(service, "/runs/subscribe?jobName=echo&label.team=red", "a"),
    await follow(service, "/runs/subscribe", "b"),
  ];
  await context.host.settle();
  const seen: OpenStream[] = [];

  const none = handler.closeStreams((stream) => {
    seen.push(stream);
    return false;
  });
  const some = handler.closeStreams(({ context }) => (context as { org: string }).org === "a");
  await Promise.all(readers.slice(0, 2).map(({ ended }) => ended));
  const left: OpenStream[] = [];
  handler.closeStreams((stream) => left.push(stream) < 0);

  assert.deepEqual(seen, [
    { context: { org: "a" }, runId: id, filter: null, stream: null },
    {
      context: { org: "a" },
      runId: null,
      filter: { jobName: ["echo"], labels: { team: "red", org: "a" } },
      stream: null,
    },
    { context: { org: "b" }, runId: null, filter: { labels: { org: "b" } }, stream: null },
  ]);
  assert.ok(
    seen.every((stream) => Object.isFrozen(stream) && (stream.filter === null || Object.isFrozen(stream.filter))),
  );
  assert.deepEqual([none, some, left], [0, 2, seen.slice(2)]);
  assert.equal(readers[2]!.isEnded, false);
  await readers[2]!.leave();
  assert.equal(handler.closeStreams(() => true), 0);
  assert.equal(context.host.timerCount, 0);
});

for (const path of ["/subscribe", "/runs/subscribe"]) {
  forEachStore(`closeStreams() ends a stream of ${path} that is being authorised`, async (context) => {
    const asked = Promise.withResolvers<void>();
    const answer = Promise.withResolvers<string>();
    const tenant = () => {
      asked.resolve();
      return answer.promise;
    };
    await using service = aService({ auth: { ...AUTH, tenant } }, context);
    const { id } = await service.engine.trigger("approval", 1);
    const opening = open(service, path === "/subscribe" ? `${path}?runId=${id}` : path, "a");
    await asked.promise;

    const ended = service.handler.closeStreams(({ runId }) => runId === (path === "/subscribe" ? id : null));
    answer.resolve("a");
    const response = await opening;

    assert.equal(await response.text(), "retry: 1000\n\n");
    assert.deepEqual([ended, service.handler.closeStreams(() => true)], [0, 0]);
    assert.equal(context.host.timerCount, 0);
  });
}

forEachStore("closeStreams() shows null as the context of a stream without auth", async (context) => {
  await using service = aService({}, context);
  await using reader = await follow(service, "/runs/subscribe");
  const seen: unknown[] = [];

  const { closeStreams } = service.handler; // needs no `this`
  const count = closeStreams(({ context, runId, filter }) => seen.push(context, runId, filter) > 0);
  await reader.ended;

  assert.deepEqual([count, seen], [1, [null, null, {}]]);
});

forEachStore("closeStreams() ends a stream whose reader does not read, and sends it nothing more", async (context) => {
  await using service = aService({}, context);
  const response = await open(service, "/runs/subscribe");
  await service.engine.trigger("echo", 1);
  await context.host.settle();

  service.handler.closeStreams(() => true);
  await service.engine.trigger("echo", 2);
  await context.host.settle();

  assert.equal(await response.text(), "");
  assert.equal(context.host.timerCount, 0);
});

const WRONG_PREDICATES: Record<string, [predicate: () => unknown, error: RegExp]> = {
  "throws": [() => {
    throw new Error("broken");
  }, /^Error: broken$/],
  "is async": [() => Promise.resolve(true), /^TypeError: closeStreams\(\): the predicate must return true or false/],
  "returns nothing": [() => {}, /^TypeError: closeStreams\(\)/],
};

for (const [what, [wrong, error]] of Object.entries(WRONG_PREDICATES)) {
  forEachStore(`closeStreams() throws, and ends no stream, if the predicate ${what}`, async (context) => {
    await using service = aService({}, context);
    const readers = [await follow(service, "/runs/subscribe"), await follow(service, "/runs/subscribe")];
    let calls = 0;

    assert.throws(
      () => service.handler.closeStreams(() => calls++ === 0 ? true : wrong() as boolean),
      (thrown) => error.test(String(thrown)),
    );
    await service.engine.trigger("echo", 1);
    await context.host.settle();

    assert.deepEqual(readers.map(({ types, isEnded }) => [types, isEnded]), Array(2).fill([["run:trigger"], false]));
    for (const reader of readers) await reader.leave();
  });
}

Deno.test("closeStreams() knows the type of what authenticate returns", async () => {
  await using service = aService();
  const options: HandlerOptions<{ org: string }> = { auth: AUTH };
  const handler = createHandler(service.engine, options);

  handler.closeStreams(({ context: { org }, runId, filter }) => org === "a" && runId === null && filter !== null);
  // @ts-expect-error: there is no such field
  handler.closeStreams(({ context: { team } }) => team);
});
