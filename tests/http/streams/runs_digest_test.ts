import assert from "node:assert/strict";
import type { RunsDigest } from "../../../src/http/streams/runs_digest.ts";
import { EventReader } from "../../support/http/event_reader.ts";
import { forEachStore, pass } from "../../support/stores/for_each_store.ts";
import { aRequest, aService, type Service } from "../../support/http/http.ts";
import { aPlay, followList } from "../../support/http/streams.ts";

const DIGEST_MS = 1_000;
/** A summary of what has happened is sent within so long: the event is read first. */
const SENT_MS = DIGEST_MS + 100;

/** Follows a list by summaries, with ids. */
async function followDigests({ handler }: Service, query = "", lastEventId?: string): Promise<EventReader> {
  const headers = { accept: "text/event-stream", ...(lastEventId && { "last-event-id": lastEventId }) };
  const path = `/runs/subscribe?digestMs=${DIGEST_MS}${query}`;
  return new EventReader(await handler.fetch(aRequest("GET", path, { headers })));
}

function digestsOf({ events }: EventReader): RunsDigest[] {
  return events as unknown as RunsDigest[]; // such a stream sends nothing else
}

forEachStore("GET /runs/subscribe with digestMs sends one summary in each interval", async (context) => {
  await using service = aService({}, context);
  const { host } = context;
  await using reader = await followDigests(service);
  await host.settle();

  const { id: done } = await service.engine.trigger("echo", 1);
  const { id: failed } = await service.engine.trigger("fail", 2);
  await service.engine.runUntilIdle();
  await host.settle();
  const before = digestsOf(reader).length;
  await pass(host, SENT_MS, 100);
  const { id: late } = await service.engine.trigger("echo", 3);
  await pass(host, 2 * SENT_MS, 100);

  assert.equal(before, 0);
  assert.deepEqual(digestsOf(reader), [
    {
      type: "runs:digest",
      count: 8, // triggered, leased, started and ended, twice
      byJob: { echo: 4, fail: 4 },
      runs: [{ id: done, status: "completed" }, { id: failed, status: "failed" }],
    },
    { type: "runs:digest", count: 1, byJob: { echo: 1 }, runs: [{ id: late, status: "pending" }] },
  ]);
});

forEachStore("summaries are of the runs that match the filter", async (context) => {
  await using service = aService({}, context);
  const { host } = context;
  await using reader = await followDigests(service, "&jobName=echo&label.org=a");
  await host.settle();

  const { id } = await service.engine.trigger("echo", 1, { labels: { org: "a" } });
  await service.engine.trigger("echo", 2, { labels: { org: "b" } });
  await service.engine.trigger("fail", 3, { labels: { org: "a" } });
  await pass(host, SENT_MS, 100);

  assert.deepEqual(digestsOf(reader), [
    { type: "runs:digest", count: 1, byJob: { echo: 1 }, runs: [{ id, status: "pending" }] },
  ]);
});

forEachStore("summaries have the status of each run after its last event", async (context) => {
  await using service = aService({}, context);
  const { host } = context;
  const { engine } = service;
  const { id: deleted } = await engine.trigger("echo", 1);
  await engine.runUntilIdle();
  await using reader = await followDigests(service);
  await host.settle();

  const { id: waiting } = await engine.trigger("approval", 1);
  await engine.runUntilIdle();
  const { id: cancelled } = await engine.trigger("approval", 2);
  await engine.cancel(cancelled);
  const { id: retriggered } = await engine.retrigger(cancelled);
  await engine.deleteRun(deleted);
  await pass(host, SENT_MS, 100);

  const [digest] = digestsOf(reader);
  assert.deepEqual(
    new Map(digest!.runs!.map(({ id, status }) => [id, status])),
    new Map<string, string | null>([
      [waiting, "waiting"],
      [cancelled, "cancelled"],
      [retriggered, "pending"],
      [deleted, null],
    ]),
  );
});

forEachStore("a summary lists 200 runs, and none if there are more", async (context) => {
  await using service = aService({}, context);
  const { host } = context;
  await using reader = await followDigests(service);
  await host.settle();
  const trigger = async (count: number) => {
    for (let input = 0; input < count; input++) await service.engine.trigger("echo", input);
  };

  await trigger(200);
  await pass(host, SENT_MS, 100);
  await trigger(201);
  await pass(host, SENT_MS, 100);

  const shown = digestsOf(reader).map(({ count, byJob, runs }) => [count, byJob, runs?.length ?? null]);
  assert.deepEqual(shown, [[200, { echo: 200 }, 200], [201, { echo: 201 }, null]]);
});

forEachStore("an id comes after the summary of the events before it", async (context) => {
  await using service = aService({}, context);
  const { host } = context;
  await using reader = await followDigests(service);
  await host.settle();
  const { length: atFirst } = reader.ids;
  await pass(host, 14_500, 500);
  await service.engine.trigger("echo", 1);
  await pass(host, 600, 100); // the connection is kept alive, and the summary is still to come
  const inBetween = reader.ids.map(({ id }) => id);
  await pass(host, SENT_MS, 100);
  const last = reader.ids.at(-1)!;

  assert.ok(atFirst > 0);
  assert.equal(new Set(inBetween).size, 1);
  assert.notEqual(last.id, inBetween[0]);
  assert.equal(last.after, 1);
});

forEachStore("a stream of summaries resumes after its last id, with or without summaries", async (context) => {
  await using service = aService({}, context);
  const { host } = context;
  const first = await followDigests(service);
  await host.settle();
  await service.engine.trigger("echo", 1);
  await pass(host, SENT_MS, 100);
  const { id: second } = await service.engine.trigger("echo", 2);
  await pass(host, DIGEST_MS / 2, 100);
  await first.leave(); // before the summary of the second run

  await using resumed = await followDigests(service, "", first.lastId);
  await using ofEvents = await followList(service, `?lastEventId=${first.lastId}`);
  await pass(host, SENT_MS, 100);

  assert.deepEqual(digestsOf(first).map(({ count }) => count), [1]);
  assert.deepEqual(digestsOf(resumed), [
    { type: "runs:digest", count: 1, byJob: { echo: 1 }, runs: [{ id: second, status: "pending" }] },
  ]);
  assert.deepEqual(ofEvents.events.map(({ runId }) => runId), [second]);
  assert.ok(resumed.ids.every(({ after }) => after === 1));
});

forEachStore("GET /runs/subscribe with digestMs says that events are missing", async (context) => {
  await using service = aService({}, context);

  await using reader = await followDigests(service, "", "999-1");
  await context.host.settle();

  assert.deepEqual([reader.gaps, reader.events.length], [1, 0]);
});

forEachStore("streams of summaries and of events stand side by side", async (context) => {
  const play = await aPlay(context);
  const { service } = play;
  await using _ = service;
  await using digests = await followDigests(service);
  await using events = await followList(service);
  await context.host.settle();

  play.step.progress(1, 2);
  await pass(context.host, 200, 20);
  await play.end();
  await pass(context.host, SENT_MS, 100);

  assert.deepEqual(events.types, ["run:progress", "run:complete"]);
  assert.deepEqual(digestsOf(digests), [
    { type: "runs:digest", count: 2, byJob: { script: 2 }, runs: [{ id: play.id, status: "completed" }] },
  ]);
});

forEachStore("no timer is left of a stream of summaries whose client is gone", async (context) => {
  await using service = aService({}, context);
  const reader = await followDigests(service);
  await context.host.settle();
  await service.engine.trigger("echo", 1);
  await pass(context.host, 100, 20);

  await reader.leave();
  await context.host.settle();

  assert.equal(context.host.timerCount, 0);
});

forEachStore("GET /runs/subscribe answers 400 for an interval that is out of range", async (context) => {
  await using service = aService({}, context);

  const bad = ["", "99", "60001", "61s", "-1", "1e3", "1.5", "a"];
  const answers = await Promise.all(bad.map((value) => service.ask("GET", `/runs/subscribe?digestMs=${value}`)));

  for (const { status, body } of answers) {
    const error = "The parameter digestMs must be 100 to 60000 milliseconds, or such a duration: 30s";
    assert.deepEqual([status, body.error], [400, error]);
  }
  const { status } = await service.ask("GET", "/runs/subscribe?digestMs=1000&digestMs=1000");
  assert.equal(status, 400);
  for (const value of ["100", "60000", "250ms", "1m"]) {
    const response = await service.handler.fetch(aRequest("GET", `/runs/subscribe?digestMs=${value}`));
    await response.body!.cancel();
    assert.equal(response.status, 200);
  }
});
