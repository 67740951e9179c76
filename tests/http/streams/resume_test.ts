import assert from "node:assert/strict";
import { StoreError } from "../../../src/model/error.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { formatCursor } from "../../../src/model/journal.ts";
import { aLogged, aStart } from "../../support/fixtures.ts";
import { EventReader } from "../../support/http/event_reader.ts";
import { claimOne, forEachStore, pass } from "../../support/stores/for_each_store.ts";
import { aRequest, aService, type Service } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";
import { withCalls } from "../../support/stores/with_calls.ts";

const EVENT_STREAM = { accept: "text/event-stream" };

async function respond({ handler }: Pick<Service, "handler">, path: string, lastId?: string): Promise<Response> {
  const headers = lastId === undefined ? EVENT_STREAM : { ...EVENT_STREAM, "last-event-id": lastId };
  return await handler.fetch(aRequest("GET", path, { headers }));
}

/** Follows as an `EventSource` does: with the last id, once there is one. */
async function follow(service: Pick<Service, "handler">, path: string, lastId?: string): Promise<EventReader> {
  return new EventReader(await respond(service, path, lastId));
}

forEachStore("event streams send an id after the events of each commit, as a message of its own", async (context) => {
  await using service = aService({}, context);
  await using reader = await follow(service, "/runs/subscribe");
  await context.host.settle();

  const { id } = await service.engine.trigger("echo", 1);
  await service.engine.runUntilIdle();
  await context.host.settle();

  assert.deepEqual(reader.types, ["run:trigger", "run:leased", "run:start", "run:complete"]);
  assert.deepEqual(reader.ids.map(({ after }) => after), [0, 1, 3, 4]);
  for (const { id } of reader.ids) assert.match(id, /^\d+-[0-9a-z]+$/);
  await using ofRun = await follow(service, `/subscribe?runId=${id}`);
  await ofRun.ended;
  assert.deepEqual(ofRun.ids.map(({ after }) => after), [1]);
});

forEachStore("clients that do not ask for an event stream are sent no ids", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  const paths = ["/runs/subscribe", `/subscribe?runId=${id}`];
  const responses = await Promise.all(
    [...paths, ...paths].map((path, at) =>
      service.handler.fetch(aRequest("GET", path, { headers: at < 2 ? {} : { accept: "*/*" } }))
    ),
  );
  const readers = responses.map((response) => new EventReader(response));

  await service.engine.runUntilIdle();
  await pass(context.host, 16_000, 1_000);

  assert.ok(readers.every(({ events }) => events.length >= 3));
  assert.deepEqual(readers.map(({ ids }) => ids), [[], [], [], []]);
  for (const reader of readers) await reader.leave();
});

forEachStore("GET /runs/subscribe goes on after Last-Event-ID, in any process", async (context) => {
  await using here = aService({}, context);
  await using there = aService({}, context);
  const whole = await follow(here, "/runs/subscribe?label.org=a");
  const first = await follow(here, "/runs/subscribe?label.org=a");
  await context.host.settle();
  await here.engine.trigger("echo", 1, { labels: { org: "a" } });
  await context.host.settle();
  await first.leave();
  await here.engine.trigger("echo", 2, { labels: { org: "b" } });
  await here.engine.trigger("approval", 3, { labels: { org: "a" } });
  await here.engine.runUntilIdle();

  await using second = await follow(there, "/runs/subscribe?label.org=a", first.lastId);
  await context.host.settle();
  await here.engine.trigger("fail", 4, { labels: { org: "a" } });
  await there.engine.runUntilIdle();
  await pass(context.host, 100, 20);

  assert.deepEqual([...first.events, ...second.events], whole.events);
  assert.deepEqual([second.gaps, whole.events.length], [0, 3 * 4]);
  await whole.leave();
});

forEachStore("GET /subscribe goes on after the id in a header or in the query", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("approval", 1);
  const path = `/subscribe?runId=${id}`;
  const first = await follow(service, path);
  await service.engine.runUntilIdle();
  await context.host.settle();
  await first.leave();
  await service.engine.cancel(id);

  await using inHeader = await follow(service, path, first.lastId);
  const inQuery = new EventReader(
    await service.handler.fetch(aRequest("GET", `${path}&lastEventId=${first.lastId}`)),
  );
  await Promise.all([inHeader.ended, inQuery.ended]);

  assert.deepEqual(first.types, ["run:leased", "run:start", "run:waiting"]);
  assert.deepEqual(inHeader.types, ["run:cancel"]);
  assert.deepEqual(inQuery.events, inHeader.events);
  assert.deepEqual([inHeader.ids.length, inQuery.ids.length], [1, 1]);
});

forEachStore("GET /subscribe answers 204 to a client that has the last event of the run", async (context) => {
  await using service = aService({}, context);
  for (const [job, last] of [["echo", "run:complete"], ["fail", "run:fail"], ["approval", "run:cancel"]] as const) {
    const { id } = await service.engine.trigger(job, 1);
    const path = `/subscribe?runId=${id}`;
    await using reader = await follow(service, path);
    await service.engine.runUntilIdle();
    if (job === "approval") await service.engine.cancel(id);
    await reader.ended;
    await service.engine.trigger("echo", "something else");

    const again = await respond(service, path, reader.lastId);
    const before = await follow(service, path, reader.ids.at(-2)!.id);
    await before.ended;

    assert.deepEqual([again.status, await again.text()], [204, ""]);
    assert.deepEqual([before.types, before.gaps], [[last], 0]);
  }
});

forEachStore("event streams begin anew after an unknown id, and say that events are missing", async (context) => {
  const { store } = context;
  // The journal is another one, in which the positions are the same.
  const forgetful = withCalls(store, {
    findCursor: (cursor) => cursor === null ? store.findCursor(null) : Promise.resolve(null),
  });
  await using service = aService({}, { ...context, store: forgetful });
  const { id } = await service.engine.trigger("approval", 1);
  await service.engine.runUntilIdle();

  await using ofRun = await follow(service, `/subscribe?runId=${id}`, "2-abc");
  await using ofList = await follow(service, "/runs/subscribe", "2-abc");
  await context.host.settle();
  await service.engine.cancel(id);
  await ofRun.ended;
  await context.host.settle();

  assert.deepEqual([ofRun.gaps, ofRun.types], [1, ["run:waiting", "run:cancel"]]);
  assert.deepEqual([ofList.gaps, ofList.types], [1, ["run:cancel"]]);
});

forEachStore("event streams take an id that is none for no id", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("approval", 1);
  await service.engine.runUntilIdle();

  for (const bad of ["", "1", "-1-a", "1-", "1-A!", "x".repeat(41), `${"9".repeat(16)}-a`, "1-a\u00e4"]) {
    await using reader = await follow(service, `/subscribe?runId=${id}&lastEventId=${encodeURIComponent(bad)}`);
    await context.host.settle();

    assert.deepEqual([reader.gaps, reader.types], [0, ["run:waiting"]], bad);
  }
});

forEachStore("an id that lies beyond the end of the journal, or has another instant, is unknown", async (context) => {
  await using service = aService({}, context);
  await using reader = await follow(service, "/runs/subscribe");
  await service.engine.trigger("echo", 1);
  await context.host.settle();
  const [position, at] = reader.lastId.split("-") as [string, string];

  for (const id of [`${Number(position) + 1}-${at}`, `${position}-${at}0`]) {
    await using other = await follow(service, "/runs/subscribe", id);
    await context.host.settle();

    assert.equal(other.gaps, 1);
  }
});

forEachStore("keep-alives bring ids, so that a filter that matches little does not fall behind", async (context) => {
  await using service = aService({}, context);
  await using reader = await follow(service, "/runs/subscribe?label.org=nobody");
  await context.host.settle();
  await service.engine.trigger("echo", 1);
  await context.host.settle();

  await pass(context.host, 15_000, 1_000);

  const end = (await context.store.findCursor(null))!;
  assert.deepEqual(reader.ids.slice(1), [{ id: `${end.position}-${end.at.toString(36)}`, after: 0 }]);
});

forEachStore("a resumed stream of a running run begins with the latest progress if none follows", async (context) => {
  await using service = aService({ sseThrottleMs: 60_000 }, context);
  const { id } = await service.engine.trigger("echo", 1);
  const { lease } = await claimOne(context.store, "echo");
  const progress = (no: number, current: number) => ({ kind: "progress" as const, no, at: 0, progress: { current } });
  await using first = await follow(service, `/subscribe?runId=${id}`);
  await context.host.settle();
  await context.store.renew([{ lease, reports: [progress(1, 1), progress(2, 2)] }], 30_000);
  await pass(context.host, 40, 20);

  await using second = await follow(service, `/subscribe?runId=${id}`, first.lastId);
  await context.host.settle();
  await context.store.renew([{ lease, reports: [aStart({ no: 3 })] }], 30_000);
  await pass(context.host, 40, 20);

  const shown = (reader: EventReader) =>
    reader.events.map((event) => event.type === "run:progress" ? event.progress.current : event.type);
  assert.deepEqual(shown(first), ["run:leased", "run:start", 1, "step:start"]); // 2 is held back
  assert.deepEqual(shown(second), [2, "step:start"]);
});

forEachStore("a resumed stream is authorised anew, and what it missed passes its filter", async (context) => {
  let tenant = "a";
  await using service = aService({
    auth: {
      authenticate: () => tenant,
      scopeRuns: (org, filter) => ({ ...filter, labels: { org } }),
      onRunAccess: (org, run) => {
        if (run.labels.org !== org) throw new Response("no", { status: 403 });
      },
    },
  }, context);
  const first = await follow(service, "/runs/subscribe");
  const { id } = await service.engine.trigger("approval", 1, { labels: { org: "a" } });
  await context.host.settle();
  await first.leave();
  await service.engine.trigger("approval", 2, { labels: { org: "a" } });
  const { id: foreign } = await service.engine.trigger("approval", 3, { labels: { org: "b" } });
  tenant = "b";

  await using second = await follow(service, "/runs/subscribe", first.lastId);
  await context.host.settle();
  const ofRun = await respond(service, `/subscribe?runId=${id}`, first.lastId);

  assert.deepEqual(second.events.map(({ runId }) => runId), [foreign]);
  assert.equal(ofRun.status, 403);
});

forEachStore("a stream whose reader is slow is closed, and its client loses nothing by it", async (context) => {
  await using service = aService({}, context);
  const response = await respond(service, "/runs/subscribe");
  const reader = response.body!.getReader();
  let text = new TextDecoder().decode((await reader.read()).value);
  const outputs = Array.from({ length: 8 }, (_, n) => `${n}`.repeat(100_000));
  for (const output of outputs) await service.engine.trigger("echo", output);
  await service.engine.runUntilIdle();
  await context.host.settle();
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    text += new TextDecoder().decode(chunk.value);
  }
  const [lastId] = [...text.matchAll(/^id: (.*)$/gm)].map(([, id]) => id!).slice(-1);

  await using next = await follow(service, "/runs/subscribe", lastId!);
  await context.host.settle(100);

  const shown = [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!)).concat(next.events);
  const complete = shown.filter(({ type }) => type === "run:complete").map(({ output }) => output.length);
  assert.deepEqual(complete, outputs.map(({ length }) => length));
  assert.ok(!text.includes("run:complete"), "the first stream was closed");
});

Deno.test("GET /subscribe sends the end of a run to a client that resumes while the journal is trimmed", async () => {
  const store = new MemoryStore();
  let isTrimmed = false;
  const trimmed = withCalls(store, {
    findCursor: async (cursor) => isTrimmed && cursor !== null ? null : await store.findCursor(cursor),
    findLastFact: () => {
      isTrimmed = true; // after the cursor was found
      return Promise.resolve(null);
    },
  });
  await using service = aService({}, { store: trimmed, host: aService().host });
  const { id } = await service.engine.trigger("echo", 1);
  const { place } = (await store.getRunState(id))!; // it was triggered
  await service.engine.runUntilIdle();

  await using reader = await follow(service, `/subscribe?runId=${id}`, formatCursor(place));
  await reader.ended;

  assert.deepEqual([reader.gaps, reader.types], [1, ["run:complete"]]);
});

Deno.test("GET /subscribe begins anew if the journal is trimmed while it looks for the latest progress", async () => {
  const store = new MemoryStore();
  let isTrimmed = false;
  const trimmed = withCalls(store, {
    findCursor: async (cursor) => isTrimmed && cursor !== null ? null : await store.findCursor(cursor),
    findLastFact: async (...asked) => {
      const found = isTrimmed ? null : await store.findLastFact(...asked);
      isTrimmed = true; // after the run was found changed
      return found;
    },
  });
  await using service = aService({}, { store: trimmed, host: aService().host });
  const { id } = await service.engine.trigger("echo", 1);
  const { place } = (await store.getRunState(id))!; // it was triggered
  const { lease } = await claimOne(store, "echo");
  await store.renew([{ lease, reports: [{ kind: "progress", no: 1, at: 0, progress: { current: 1 } }] }], 30_000);

  await using reader = await follow(service, `/subscribe?runId=${id}`, formatCursor(place));
  await service.host.settle();

  assert.deepEqual([reader.gaps, reader.types], [1, ["run:leased", "run:start", "run:progress"]]);
});

Deno.test("event streams end when the journal was trimmed before they read it, and their clients begin anew", async () => {
  const store = new MemoryStore();
  let isTrimmed = false;
  const trimmed = withCalls(store, {
    readJournal: (after, length) => isTrimmed ? Promise.resolve(null) : store.readJournal(after, length),
  });
  await using service = aService({}, { store: trimmed, host: aService().host });
  const reader = await follow(service, "/runs/subscribe");
  await service.host.settle();

  isTrimmed = true;
  await service.engine.trigger("echo", 1);
  await reader.ended;

  assert.deepEqual(reader.types, []);
});

forEachStore(
  "a client that reads is sent any number of events of one commit, live and when it resumes",
  async (context) => {
    await using service = aService({}, context);
    const labels = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`key${n}`, "v".repeat(255)]));
    const { id } = await service.engine.trigger("echo", 1);
    const { id: labelled } = await service.engine.trigger("echo", 2, { labels });
    const leases = [(await claimOne(context.store, "echo")).lease, (await claimOne(context.store, "echo")).lease];
    const [place] = [await context.store.findCursor(null)];
    const readers = await Promise.all([id, labelled].map((runId) => follow(service, `/subscribe?runId=${runId}`)));
    await context.host.settle();

    const lines = Array.from({ length: 3_000 }, (_, n) => aLogged({ message: `line ${n}`, no: n + 1 }));
    await context.store.renew(leases.map((lease) => ({ lease, reports: lines })), 30_000);
    await pass(context.host, 40, 20);
    await context.host.settle(1_000);
    const resumed = await Promise.all(
      [id, labelled].map((runId) => follow(service, `/subscribe?runId=${runId}`, formatCursor(place!))),
    );
    await context.host.settle(1_000);

    assert.deepEqual(readers[0]!.events.length, 2 + 3_000);
    assert.deepEqual(resumed.map(({ events }) => events.length), [3_000, 3_000]);
    for (const reader of [...readers, ...resumed]) await reader.leave();
  },
);

forEachStore("a run that waits for any number of signals is shown to a client that reads", async (context) => {
  const fanOut = aJob(
    (step) => Promise.all(Array.from({ length: 3_000 }, (_, n) => step.wait(`wait ${n}`))),
    "fan-out",
  );
  await using service = aService({}, context, { fanOut });
  const { id } = await service.engine.trigger("fan-out", 1);
  await service.engine.runUntilIdle();

  await using reader = await follow(service, `/subscribe?runId=${id}`);
  await context.host.settle(500);

  assert.deepEqual([reader.events.length, reader.isEnded], [3_000, false]);
});

Deno.test("a stream that resumes far back leaves the event loop free while it reads what is not for it", async () => {
  const store = new MemoryStore();
  let pages = 0;
  const long = withCalls(store, {
    readJournal: (after) => {
      pages += 1;
      const rows = after === 1_000 ? [] : [{ position: after + 1, at: 0, facts: [[1, "failed"] as const] }];
      return Promise.resolve({ rows, end: { position: 1_000, at: 0 } });
    },
  });
  await using service = aService({}, { store: long, host: aService().host });
  await using reader = await follow(service, "/runs/subscribe?label.org=nobody", "0-0");
  await service.host.settle(100);

  assert.ok(pages > 10 && pages <= 101, `${pages} pages were read in 100 macrotasks`);
  assert.equal(reader.gaps, 0);
});

forEachStore("a resumed stream sends the latest progress once, though the store fails meanwhile", async (context) => {
  const { store, host } = context;
  let asked = 0;
  const broken = withCalls(store, {
    findCursor: async (cursor) => {
      if (cursor !== null && ++asked === 2) throw new StoreError("The disk is busy"); // after the run was looked at
      return await store.findCursor(cursor);
    },
  });
  await using service = aService({}, { ...context, store: broken });
  const { id } = await service.engine.trigger("echo", 1);
  const { lease } = await claimOne(store, "echo");
  await store.renew([{ lease, reports: [{ kind: "progress", no: 1, at: 0, progress: { current: 1 } }] }], 30_000);
  const { place } = (await store.getRunState(id))!; // it was triggered
  await service.engine.trigger("echo", 2);

  const following = follow(service, `/subscribe?runId=${id}`, formatCursor(place));
  await pass(host, 100, 20); // it is tried again after a while
  await using reader = await following;
  await pass(host, 100, 20);

  assert.ok(asked > 2, "it failed once");
  assert.deepEqual(reader.types, ["run:progress"]);
});

forEachStore("a stream begins though the store does not answer at first", async (context) => {
  const { store } = context;
  let failures = 0;
  const failOnce = <A extends unknown[], T>(call: (...args: A) => Promise<T>) => {
    let isBroken = true;
    return async (...args: A): Promise<T> => {
      if (!isBroken) return await call(...args);
      isBroken = false;
      failures += 1;
      throw new StoreError("The disk is busy");
    };
  };
  const broken = withCalls(store, {
    getRunState: failOnce((id) => store.getRunState(id)),
    findCursor: failOnce((cursor) => store.findCursor(cursor)),
  });
  await using service = aService({}, { ...context, store: broken });
  const { id } = await service.engine.trigger("approval", 1);
  await service.engine.runUntilIdle();

  await using ofRun = await follow(service, `/subscribe?runId=${id}`);
  await using ofList = await follow(service, "/runs/subscribe");
  await pass(context.host, 100, 10);
  await service.engine.cancel(id);
  await pass(context.host, 100, 10);

  assert.deepEqual([ofRun.types, ofList.types], [["run:waiting", "run:cancel"], ["run:cancel"]]);
  assert.equal(failures, 2);
});

forEachStore("an old id of a run that has not changed since costs no reading of the journal", async (context) => {
  const { store } = context;
  let pages = 0;
  const counted = withCalls(store, {
    readJournal: (...page) => {
      pages += 1;
      return store.readJournal(...page);
    },
  });
  await using service = aService({}, { ...context, store: counted });
  const ids: string[] = [];
  for (const job of ["approval", "echo"]) ids.push((await service.engine.trigger(job, 1)).id);
  await service.engine.runUntilIdle();
  const old = formatCursor((await store.findCursor(null))!);
  for (let n = 0; n < 50; n++) await service.engine.trigger("echo", n);
  await service.engine.runUntilIdle();

  const ended = await respond(service, `/subscribe?runId=${ids[1]}`, old);
  const pagesOfEnded = pages;
  await using waiting = await follow(service, `/subscribe?runId=${ids[0]}`, old);
  await context.host.settle();
  const pagesOfWaiting = pages;
  await service.engine.cancel(ids[0]!);
  await waiting.ended;

  assert.deepEqual([ended.status, pagesOfEnded], [204, 0]);
  assert.ok(pagesOfWaiting <= 2, `${pagesOfWaiting} pages`); // to see that it is up to date
  assert.deepEqual([waiting.types, waiting.gaps], [["run:cancel"], 0]);
});

forEachStore("streams that resume at once with an old id share the pages of the journal", async (context) => {
  const { store } = context;
  let pages = 0;
  const counted = withCalls(store, {
    readJournal: (after, _length, at) => {
      pages += 1;
      return store.readJournal(after, 2_000, at);
    },
  });
  await using service = aService({}, { ...context, store: counted });
  const runs: string[] = [];
  for (let n = 0; n < 100; n++) {
    runs.push((await service.engine.trigger("echo", n, { labels: { org: `${n % 10}` } })).id);
  }
  await service.engine.runUntilIdle();
  const readAll = async (paths: readonly string[]) => {
    pages = 0;
    const readers = await Promise.all(paths.map((path) => follow(service, path, "0-0")));
    await context.host.settle(300);
    for (const reader of readers) await reader.leave();
    return { read: pages, readers };
  };
  const lists = Array.from({ length: 20 }, (_, n) => `/runs/subscribe?label.org=${n % 10}`);

  const one = await readAll(lists.slice(0, 1));
  const many = await readAll([...lists, ...runs.slice(-20).map((id) => `/subscribe?runId=${id}`)]);

  assert.ok(one.read > 5, `${one.read} pages`);
  assert.ok(many.read <= 1.5 * one.read, `${many.read} pages for 40 streams, ${one.read} for one`);
  for (const { events } of many.readers.slice(0, 20)) assert.equal(events.length, 10 * 4);
  for (const { types } of many.readers.slice(20)) {
    assert.deepEqual(types, ["run:trigger", "run:leased", "run:start", "run:complete"]);
  }
});

forEachStore("a client that does not read keeps no other one from catching up", async (context) => {
  await using service = aService({}, context);
  const outputs = Array.from({ length: 20 }, (_, n) => `${n % 10}`.repeat(50_000));
  for (const output of outputs) await service.engine.trigger("echo", output);
  await service.engine.runUntilIdle();

  const idle = await respond(service, "/runs/subscribe", "0-0");
  await using reader = await follow(service, "/runs/subscribe", "0-0");
  await context.host.settle(300);
  const complete = reader.events.filter(({ type }) => type === "run:complete").length;
  await using late = new EventReader(idle);
  await context.host.settle(300);

  assert.equal(complete, outputs.length);
  assert.deepEqual(late.events, reader.events);
});

forEachStore("a client that reads slowly receives large events after small ones when it resumes", async (context) => {
  await using service = aService({}, context);
  const lengths = [90_000, 200_000, 30_000, 250_000, 600_000, 100_000, 180_000];
  for (const length of lengths) await service.engine.trigger("echo", "x".repeat(length));
  await service.engine.runUntilIdle();

  const response = await respond(service, "/runs/subscribe", "0-0");
  await context.host.settle(300); // it reads nothing meanwhile
  await using late = new EventReader(response);
  await context.host.settle(300);

  const outputs = late.events.flatMap((event) => event.type === "run:complete" ? [`${event.output}`.length] : []);
  assert.deepEqual(outputs, lengths);
  assert.equal(late.isEnded, false);
});

forEachStore("a stream counts before it reads anything", async (context) => {
  const { store } = context;
  let reads = 0;
  const counted = withCalls(store, {
    findCursor: (cursor) => {
      reads += 1;
      return store.findCursor(cursor);
    },
  });
  await using service = aService({ limits: { maxStreams: 1 } }, { ...context, store: counted });
  const { id } = await service.engine.trigger("echo", 1);
  await service.engine.runUntilIdle();
  await using first = await follow(service, "/runs/subscribe");
  reads = 0;

  const refused = [await respond(service, `/subscribe?runId=${id}`, "0-0"), await respond(service, "/runs/subscribe")];
  await first.leave();
  const whole = await respond(service, `/subscribe?runId=${id}`, formatCursor((await store.findCursor(null))!));
  await using later = await follow(service, "/runs/subscribe");

  assert.deepEqual([refused.map(({ status }) => status), whole.status, later.gaps], [[503, 503], 204, 0]);
  assert.equal(reads, 3); // those of the two that were not refused: one has everything, which is checked twice
});

forEachStore(
  "the last event of a run comes after the time after which an EventSource may come back: a day",
  async (context) => {
    await using service = aService({}, context);
    const { id } = await service.engine.trigger("echo", 1);
    const list = (await respond(service, "/runs/subscribe")).text();
    const live = await respond(service, `/subscribe?runId=${id}`);
    await service.engine.runUntilIdle();
    const later = await respond(service, `/subscribe?runId=${id}`);
    await context.host.settle();

    const texts = [await live.text(), await later.text()];
    service.handler.closeStreams(() => true);
    const ofList = await list;

    for (const text of texts) assert.match(text, /retry: 86400000\n\ndata: \{"type":"run:complete".*\n\nid: .*\n\n$/);
    assert.deepEqual(texts.map((text) => text.split("retry:").length), [2, 2]);
    assert.match(ofList, /run:complete/);
    assert.doesNotMatch(ofList, /retry:/);
  },
);
