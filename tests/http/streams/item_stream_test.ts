import assert from "node:assert/strict";
import { internalsOf } from "../../../src/engine/engine_internals.ts";
import { defineStream } from "../../../src/model/stream.ts";
import type { Lease } from "../../../src/model/lease.ts";
import type { Store } from "../../../src/store/store.ts";
import { aRequest, aService, type Service } from "../../support/http/http.ts";
import { aFailure, aStep } from "../../support/fixtures.ts";
import { claimOne, forEachStore, pass, type StoreTest } from "../../support/stores/for_each_store.ts";

const tokens = defineStream<string>("tokens");

/** A run whose stream a test writes: a chunk for each call. */
async function aStream({ store }: StoreTest, service: Service) {
  const { id } = await service.engine.trigger("echo", null);
  const { lease } = await claimOne(store, "echo");
  let last = 0;
  let [end, items, size] = [0, 0, 0];
  const write = async (...texts: unknown[]) => {
    last += 1;
    size += JSON.stringify(texts).length;
    await append(store, lease, { position: last, after: end, first: items, size, items: texts });
    [end, items] = [last, items + texts.length];
  };
  /** Records a failed attempt, so that what it has written is void. */
  const reset = async (attempts: number) => {
    last += 1;
    const result = { status: "retrying" as const, failure: aFailure(), delayMs: 0 };
    const mark = aChunk({ position: last, after: 0, first: 0, size: 0, items: [] });
    await store.saveStep(lease, aStep({ attempts, result, chunks: [{ ...mark, isPermanent: true }] }), []);
    [end, items, size] = [last, 0, 0];
  };
  const finish = () => store.cancel(id, "request", null);
  return { id, path: `/stream?runId=${id}&name=tokens`, write, reset, finish };
}

interface Written {
  position: number;
  after: number;
  first: number;
  size: number;
  items: unknown[];
}

function aChunk({ position, after, first, size, items }: Written) {
  const text = JSON.stringify(items);
  return {
    stream: tokens.name,
    position,
    after,
    first,
    count: items.length,
    size,
    items: text,
    isPermanent: false,
  };
}

async function append(store: Store, lease: Lease, written: Written): Promise<void> {
  const [isHeld] = await store.appendItems([{ lease, chunks: [aChunk(written)] }]);
  assert.equal(isHeld, true);
}

const fetch = (service: Service, path: string, headers: Record<string, string> = {}, method = "GET") =>
  service.handler.fetch(aRequest(method, path, { headers }));

/** What an answer says, in short. */
async function show(response: Response) {
  const { status, headers } = response;
  const text = await response.text();
  const flags = ["stream-up-to-date", "stream-closed"].filter((name) => headers.get(name) === "true");
  return { status, text, next: headers.get("stream-next-offset"), flags: flags.map((name) => name.slice(7)) };
}

/** The messages of an event stream, as they come. */
function messages(response: Response) {
  const all: { event: string; data: string; id: string | null }[] = [];
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  const ended = (async () => {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      const blocks = (rest + read.value).split("\n\n");
      rest = blocks.pop()!;
      for (const block of blocks) {
        const lines = block.split("\n");
        const of = (name: string) =>
          lines.filter((line) => line.startsWith(`${name}:`)).map((line) =>
            line.slice(name.length + 1).replace(/^ /, "")
          );
        if (of("event").length > 0) {
          all.push({ event: of("event")[0]!, data: of("data").join("\n"), id: of("id")[0] ?? null });
        }
      }
    }
  })();
  return { all, ended, cancel: () => reader.cancel() };
}

forEachStore("GET /stream answers with the items behind an offset, and where to go on", async (context) => {
  await using service = aService({}, context);
  const { path, write, finish } = await aStream(context, service);
  await write("a", "b");
  await write("c");

  const all = await show(await fetch(service, path));
  await write("d");
  const rest = await show(await fetch(service, `${path}&offset=${all.next}`));
  const now = await show(await fetch(service, `${path}&offset=now`));
  await finish();
  const closed = await show(await fetch(service, `${path}&offset=${rest.next}`));

  assert.deepEqual([all.status, all.text, all.flags], [200, '["a","b","c"]', ["up-to-date"]]);
  assert.deepEqual([rest.text, rest.flags], ['["d"]', ["up-to-date"]]);
  assert.deepEqual([now.text, now.next], ["[]", rest.next]);
  assert.deepEqual([closed.text, closed.next, closed.flags], ["[]", rest.next, ["up-to-date", "closed"]]);
});

forEachStore("GET /stream reads a long stream in parts", async (context) => {
  await using service = aService({}, context);
  const { path, write } = await aStream(context, service);
  for (let at = 0; at < 600; at++) await write(at);

  const first = await show(await fetch(service, path));
  const second = await show(await fetch(service, `${path}&offset=${first.next}`));

  assert.deepEqual([first.flags, second.flags], [[], ["up-to-date"]]);
  assert.equal(JSON.parse(first.text).length + JSON.parse(second.text).length, 600);
});

forEachStore(
  "GET /stream of a stream without items answers with none, and of an unknown run with 404",
  async (context) => {
    await using service = aService({}, context);
    const { id } = await service.engine.trigger("echo", 1);

    const empty = await show(await fetch(service, `/stream?runId=${id}&name=tokens&offset=-1`));
    const again = await show(await fetch(service, `/stream?runId=${id}&name=tokens&offset=${empty.next}`));
    const unknown = await service.ask("GET", "/stream?runId=unknown&name=tokens");
    const live = await service.ask("GET", "/stream?runId=unknown&name=tokens&offset=-1&live=sse");

    assert.deepEqual([empty.status, empty.text, again.text], [200, "[]", "[]"]);
    assert.deepEqual([unknown.status, live.status], [404, 404]);
  },
);

forEachStore("GET /stream refuses what it does not know", async (context) => {
  await using service = aService({}, context);
  const { path } = await aStream(context, service);

  const queries = [
    "&offset=",
    "&offset=12",
    "&offset=-1&offset=-1",
    "&live=sse",
    "&live=long-poll",
    "&offset=-1&live=ws",
    "&as=bytes",
    "&resets=no",
    "&name=other",
  ];
  const answers = await Promise.all(queries.map((query) => service.ask("GET", path + query)));
  const unnamed = await service.ask("GET", path.replace("&name=tokens", ""));

  assert.deepEqual([...answers, unnamed].map(({ status }) => status), [...queries, ""].map(() => 400));
});

forEachStore("only GET and HEAD are methods of /stream", async (context) => {
  await using service = aService({}, context);
  const { path, write } = await aStream(context, service);
  await write("a");

  const put = await fetch(service, path, {}, "PUT");
  const head = await fetch(service, path, {}, "HEAD");

  assert.deepEqual([put.status, put.headers.get("allow")], [405, "GET, HEAD"]);
  assert.deepEqual([head.status, await head.text(), head.headers.get("content-type")], [200, "", "application/json"]);
  const { next } = await show(await fetch(service, path));
  assert.equal(head.headers.get("stream-next-offset"), next);
});

forEachStore("GET /stream answers 304 while nothing has changed", async (context) => {
  await using service = aService({}, context);
  const { path, write, finish } = await aStream(context, service);
  await write("a");
  const first = await fetch(service, path);
  await first.text();
  const etag = first.headers.get("etag")!;

  const same = await fetch(service, path, { "if-none-match": etag });
  await finish();
  const closed = await fetch(service, path, { "if-none-match": etag });

  assert.deepEqual([same.status, await same.text(), same.headers.get("etag")], [304, "", etag]);
  assert.deepEqual([closed.status, await closed.text()], [200, '["a"]']);
  assert.match(closed.headers.get("etag")!, /:c"$/);
  assert.equal(first.headers.get("cache-control"), "private, no-cache");
});

forEachStore(
  "GET /stream with the ETag of items that do not count any more answers with those that do",
  async (context) => {
    await using service = aService({}, context);
    const { path, write, reset } = await aStream(context, service);
    await write("a");
    const first = await fetch(service, path);
    await first.text();
    const etag = first.headers.get("etag")!;
    await reset(1);

    const empty = await fetch(service, path, { "if-none-match": etag });
    await write("b");
    const other = await fetch(service, path, { "if-none-match": etag });

    assert.deepEqual([empty.status, await empty.text(), other.status, await other.text()], [200, "[]", 200, '["b"]']);
  },
);

forEachStore("GET /stream sends an item that is larger than an answer", async (context) => {
  await using service = aService({}, context);
  const { path, write, finish } = await aStream(context, service);
  const large = "x".repeat(200_000);
  await write("a");
  await write(large);
  await write("b");
  await finish();

  const all: string[] = [];
  for (let offset = "-1", isOver = false; !isOver;) {
    const { text, next, flags } = await show(await fetch(service, `${path}&offset=${offset}`));
    all.push(...JSON.parse(text));
    isOver = flags.includes("closed");
    offset = next!;
  }
  const events = messages(await fetch(service, `${path}&offset=-1&live=sse`));
  await events.ended;

  assert.deepEqual(all.map(({ length }) => length), [1, 200_000, 1]);
  const sent = events.all.filter(({ event }) => event === "data").flatMap(({ data }) => JSON.parse(data));
  assert.deepEqual(sent.map(({ length }) => length), [1, 200_000, 1]);
});

forEachStore("GET /stream with live=sse sends items of any size to a reader that is slow", async (context) => {
  await using service = aService({}, context);
  const { path, write, finish } = await aStream(context, service);
  const lengths = [60_000, 262_142, 100, 262_142, 60_000, 60_000, 262_142];
  for (const length of lengths) await write("x".repeat(length));
  await finish();

  const response = await fetch(service, `${path}&offset=-1&live=sse`);
  await context.host.settle(); // it has not asked for anything yet
  const events = messages(response);
  await events.ended;

  const sent = events.all.filter(({ event }) => event === "data").flatMap(({ data }) => JSON.parse(data));
  assert.deepEqual(sent.map(({ length }) => length), lengths);
  assert.equal(JSON.parse(events.all.at(-1)!.data).streamClosed, true);
});

forEachStore("GET /stream answers 410 if the items of the client do not count any more", async (context) => {
  await using service = aService({}, context);
  const { path, write, reset } = await aStream(context, service);
  await write("a", "b");
  const { next } = await show(await fetch(service, path));
  await reset(1);
  await write("c");

  for (const live of ["", "&live=long-poll", "&live=sse"]) {
    const { status, body } = await service.ask("GET", `${path}&offset=${next}${live}`);
    assert.deepEqual([status, body.code, body.from, body.offset], [410, "stream_reset", 0, "-1"]);
  }
  const other = await service.ask("GET", `${path}&offset=0000000000000001-1`);
  assert.deepEqual([other.status, other.body.from], [410, 0]);
});

forEachStore("GET /stream as text joins the items that are strings", async (context) => {
  await using service = aService({}, context);
  const { path, write, finish } = await aStream(context, service);
  await write("Hello,\r\nwor", { no: "text" }, "ld\rof\n\n lines");
  await finish();

  const response = await fetch(service, `${path}&as=text`);
  const events = messages(await fetch(service, `${path}&as=text&live=sse&offset=-1`));
  await events.ended;

  assert.equal(response.headers.get("content-type"), "text/plain; charset=utf-8");
  assert.equal(await response.text(), "Hello,\r\nworld\rof\n\n lines");
  assert.equal(events.all[0]!.data, "Hello,\nworld\nof\n\n lines");
});

forEachStore("GET /stream with live=long-poll waits for items, or for 25 seconds, or for the end", async (context) => {
  const { host } = context;
  await using service = aService({}, context);
  const { path, write, finish } = await aStream(context, service);
  const { next } = await show(await fetch(service, path));
  const poll = async () => {
    const pending = fetch(service, `${path}&offset=${next}&live=long-poll`);
    await host.settle();
    return pending;
  };

  const first = poll();
  await pass(host, 100);
  await write("a");
  await pass(host, 100);
  const second = await first;
  const answered = { cursor: second.headers.get("stream-cursor"), ...await show(second) };
  const end = fetch(service, `${path}&offset=${answered.next}&live=long-poll&cursor=${answered.cursor}`);
  await host.settle();
  await pass(host, 25_100, 1_000);
  const nothing = await end;
  const last = fetch(service, `${path}&offset=${answered.next}&live=long-poll`);
  await host.settle();
  await finish();
  await pass(host, 100);
  const closed = await show(await last);

  assert.deepEqual([answered.status, answered.text, answered.flags], [200, '["a"]', ["up-to-date"]]);
  assert.equal(nothing.status, 204);
  assert.equal(nothing.headers.get("stream-next-offset"), answered.next);
  assert.ok(Number(nothing.headers.get("stream-cursor")) > Number(answered.cursor));
  assert.deepEqual([closed.status, closed.flags], [204, ["up-to-date", "closed"]]);
  assert.equal(service.handler.closeStreams(() => true), 0);
});

forEachStore(
  "GET /stream with live=long-poll no longer counts as a stream once its client has left",
  async (context) => {
    const { host } = context;
    await using service = aService({ limits: { maxStreams: 1 } }, context);
    const { path } = await aStream(context, service);
    const { next } = await show(await fetch(service, path));
    const url = `http://localhost${path}&offset=${next}&live=long-poll`;
    const client = new AbortController();
    const left = service.handler.fetch(new Request(url, { signal: client.signal }));
    await host.settle();
    const refused = await service.ask("GET", `${path}&offset=-1&live=sse`);

    client.abort();
    await left;
    const abandoned = await service.handler.fetch(new Request(url, { signal: client.signal }));

    assert.equal(refused.status, 503);
    assert.equal(abandoned.status, 204);
    assert.equal(service.handler.closeStreams(() => true), 0);
  },
);

forEachStore("GET /stream with live=sse sends items as they come, and says where it ends", async (context) => {
  const { host } = context;
  await using service = aService({}, context);
  const { path, write, finish } = await aStream(context, service);
  const events = messages(await fetch(service, `${path}&offset=-1&live=sse`));
  await pass(host, 100);
  await write("a");
  await pass(host, 100);
  await write("b");
  await pass(host, 100);
  const { next } = await show(await fetch(service, path));

  await finish();
  await pass(host, 100);
  await events.ended;

  const data = events.all.filter(({ event }) => event === "data").map(({ data }) => data);
  const controls = events.all.filter(({ event }) => event === "control").map(({ data }) => JSON.parse(data));
  assert.deepEqual(data, ['["a"]', '["b"]']);
  assert.equal(controls[0].upToDate, true);
  assert.deepEqual(controls.at(-1), { streamNextOffset: next, streamClosed: true });
  assert.equal(events.all.at(-1)!.id, next);
});

forEachStore("GET /stream with live=sse goes on after Last-Event-ID, whatever the offset says", async (context) => {
  await using service = aService({}, context);
  const { path, write, finish } = await aStream(context, service);
  await write("a");
  const { next } = await show(await fetch(service, path));
  await write("b");
  await finish();

  const events = messages(await fetch(service, `${path}&offset=-1&live=sse`, { "last-event-id": next! }));
  await events.ended;

  assert.deepEqual(events.all.filter(({ event }) => event === "data").map(({ data }) => data), ['["b"]']);
});

forEachStore(
  "an open SSE ends at a reset, and with resets=event it says what does not count any more",
  async (context) => {
    const { host } = context;
    await using service = aService({}, context);
    const { path, write, reset, finish } = await aStream(context, service);
    await write("a", "b");
    const plain = messages(await fetch(service, `${path}&offset=-1&live=sse`));
    const told = messages(await fetch(service, `${path}&offset=-1&live=sse&resets=event`));
    await pass(host, 100);

    await reset(1);
    await pass(host, 100);
    await plain.ended;
    await write("c");
    await pass(host, 100);
    await finish();
    await pass(host, 100);
    await told.ended;

    const shown = told.all.filter(({ event }) => event !== "control").map(({ event, data }) =>
      event === "reset" ? JSON.parse(data).from : data
    );
    assert.deepEqual(shown, [0, '["a","b"]', 0, '["c"]']);
    assert.deepEqual(plain.all.filter(({ event }) => event === "reset"), []);
  },
);

forEachStore("streams of items are counted, and closeStreams() sees and ends them", async (context) => {
  const { host } = context;
  await using service = aService({ limits: { maxStreams: 2 } }, context);
  const { id, path, write } = await aStream(context, service);
  await write("a");
  const { next } = await show(await fetch(service, path));
  const events = messages(await fetch(service, `${path}&offset=-1&live=sse`));
  const poll = fetch(service, `${path}&offset=${next}&live=long-poll`);
  await host.settle();

  const refused = await service.ask("GET", `${path}&offset=-1&live=sse`);
  const seen: unknown[] = [];
  const closed = service.handler.closeStreams((stream) => seen.push(stream) > 0);
  await events.ended;
  const answer = await poll;

  assert.equal(refused.status, 503);
  assert.deepEqual(seen, Array(2).fill({ context: null, runId: id, filter: null, stream: "tokens" }));
  assert.equal(closed, 2);
  assert.equal(answer.status, 204);
});

forEachStore("GET /stream ends at maxStreamMs, and when the engine stops", async (context) => {
  const { host } = context;
  const service = aService({ limits: { maxStreamMs: 1_000 } }, context);
  const { path } = await aStream(context, service);
  const first = messages(await fetch(service, `${path}&offset=-1&live=sse`));
  await pass(host, 1_100);
  await first.ended;
  const second = messages(await fetch(service, `${path}&offset=-1&live=sse`));
  await host.settle();

  await service.engine.stop();
  await second.ended;

  assert.ok(first.all.length > 0);
});

forEachStore(
  "GET /stream that is opened after the engine has stopped ends at once, and says when to come back",
  async (context) => {
    const service = aService({}, context);
    const { path, write } = await aStream(context, service);
    await write("a");
    await service.engine.stop();

    const events = await fetch(service, `${path}&offset=-1&live=sse`);
    const poll = await service.ask("GET", `${path}&offset=-1&live=long-poll`);
    const now = await service.ask("GET", path);

    assert.deepEqual([events.status, await events.text()], [200, "retry: 1000\n\n"]);
    assert.deepEqual([poll.status, poll.body.code, poll.headers.get("retry-after")], [503, "unavailable", "1"]);
    assert.deepEqual([now.status, now.body], [200, ["a"]]);
  },
);

forEachStore(
  "GET /stream whose client has left before it is read leaves nothing that follows the run",
  async (context) => {
    await using service = aService({}, context);
    const { path } = await aStream(context, service);
    const { reader } = internalsOf(service.engine).lifecycle;
    const poll = aRequest("GET", `${path}&offset=-1&live=long-poll`);

    const polled = await service.handler.fetch(new Request(poll, { signal: AbortSignal.abort() }));
    const afterPoll = reader.readPlace;
    const events = await fetch(service, `${path}&offset=-1&live=sse`);
    await events.body!.cancel();
    await context.host.settle();

    assert.deepEqual([polled.status, afterPoll, reader.readPlace], [204, null, null]);
  },
);

forEachStore("GET /streams lists the streams of a run", async (context) => {
  await using service = aService({}, context);
  const { id, write } = await aStream(context, service);
  await write("a", "b");

  const { body } = await service.ask("GET", `/streams?runId=${id}`);

  assert.deepEqual(body.map(({ name, items, isOpen }: Record<string, unknown>) => [name, items, isOpen]), [
    ["tokens", 2, true],
  ]);
  assert.equal((await service.ask("GET", "/streams?runId=unknown")).status, 404);
});

forEachStore("GET /stream asks onRunAccess with the operation read", async (context) => {
  const asked: string[] = [];
  const service = aService({
    auth: {
      authenticate: () => ({}),
      onRunAccess: (_context: unknown, _run: unknown, { operation }: { operation: string }) => {
        asked.push(operation);
        throw new Response("no", { status: 403 });
      },
    },
  } as never, context);
  const { path } = await aStream(context, service);

  const answers = await Promise.all(
    ["", "&offset=-1&live=sse", "&offset=-1&live=long-poll"].map((query) => service.ask("GET", path + query)),
  );

  assert.deepEqual(answers.map(({ status }) => status), [403, 403, 403]);
  assert.deepEqual(asked, ["read", "read", "read"]);
  await service.engine.stop();
});
