import assert from "node:assert/strict";
import { EventStream, type Message } from "../../../src/http/streams/event_stream.ts";

const MAX_QUEUED_BYTES = 262_144;

function aMessage(text: string, subject: string | null = null): Message {
  return { bytes: new TextEncoder().encode(`${text}\n`), subject };
}

/** A stream, how often it has told that it was closed, and its reader, who takes chunks one by one. */
function aStream() {
  const closed = { times: 0 };
  const stream = new EventStream(() => closed.times++);
  const reader = stream.toResponse().body!.getReader();
  const take = async () => {
    const { done, value } = await reader.read();
    return done ? null : new TextDecoder().decode(value).trimEnd().split("\n");
  };
  return { stream, closed, reader, take };
}

Deno.test("EventStream sends together what is sent at once, in order, to a reader who waits", async () => {
  const { stream, take } = aStream();
  const first = take();
  await Promise.resolve();

  for (const text of ["a", "b", "c"]) stream.send(aMessage(text));
  const second = await first.then(() => {
    stream.send(aMessage("d"));
    return take();
  });

  assert.deepEqual([await first, second], [["a", "b", "c"], ["d"]]);
  stream.close();
});

Deno.test("EventStream.close() gives a reader who waits what was sent", async () => {
  const { stream, take } = aStream();
  const first = take();
  await Promise.resolve();

  stream.send(aMessage("last"));
  stream.close();

  assert.deepEqual([await first, await take()], [["last"], null]);
});

Deno.test("EventStream keeps what is sent before anybody reads", async () => {
  const { stream, take } = aStream();

  for (const text of ["a", "b"]) stream.send(aMessage(text));

  assert.deepEqual(await take(), ["a", "b"]);
  stream.close();
});

Deno.test("EventStream sends what is superseded, unless much waits to be read", async () => {
  const { stream, take } = aStream();

  for (const n of [1, 2, 3]) stream.send(aMessage(`a ${n}`, "a"));

  assert.deepEqual(await take(), ["a 1", "a 2", "a 3"]);
  stream.close();
});

Deno.test("EventStream sends tiny messages however much waits, and of these the latest", async () => {
  const { stream, closed, take } = aStream();
  const large = "x".repeat(2 * MAX_QUEUED_BYTES);

  stream.send(aMessage(large));
  for (const n of [1, 2, 3]) stream.send({ ...aMessage(`id ${n}`, "id"), isTiny: true });

  assert.deepEqual(await take(), [large, "id 3"]);
  assert.equal(closed.times, 0);
  stream.close();
});

Deno.test("EventStream.ready() resolves while little waits, when its reader has taken it, or when it has ended", async () => {
  const { stream, take } = aStream();
  const large = "x".repeat(150_000);
  const resolved: string[] = [];

  await stream.ready();
  stream.send(aMessage("a"));
  await stream.ready();
  stream.send(aMessage(large));
  const read = stream.ready()!.then(() => resolved.push("read"));
  const before = [...resolved];
  await take();
  await read;
  stream.send(aMessage(large));
  const closed = stream.ready()!.then(() => resolved.push("closed"));
  stream.close();
  await closed;

  assert.deepEqual([before, resolved], [[], ["read", "closed"]]);
});

Deno.test("EventStream leaves out what is superseded when much waits, and puts what supersedes it in its own place", async () => {
  const { stream, take } = aStream();

  const large = "x".repeat(20_000);
  stream.send(aMessage(large));
  stream.send(aMessage("a 1", "a"));
  stream.send(aMessage("b 1", "b"));
  stream.send(aMessage("step"));
  stream.send(aMessage("a 2", "a"));
  stream.send(aMessage("a 3", "a"));

  assert.deepEqual(await take(), [large, "b 1", "step", "a 3"]);
  stream.close();
});

Deno.test("EventStream supersedes nothing that was read", async () => {
  const { stream, take } = aStream();
  stream.send(aMessage("a 1", "a"));
  const first = await take();

  stream.send(aMessage("a 2", "a"));

  assert.deepEqual([first, await take()], [["a 1"], ["a 2"]]);
  stream.close();
});

Deno.test("EventStream closes when too much waits for a reader who does not read", async () => {
  const { stream, closed, take } = aStream();
  const kilobyte = "x".repeat(1_023);

  for (let n = 0; n < MAX_QUEUED_BYTES / 1_024; n++) stream.send(aMessage(kilobyte));
  const atLimit = closed.times;
  stream.send(aMessage("one more"));
  stream.send(aMessage("and another"));

  assert.deepEqual([atLimit, closed.times], [0, 1]);
  assert.equal(await take(), null);
});

Deno.test("EventStream closes before a message that would make too much wait, and keeps nothing of it", async () => {
  const { stream, closed, take } = aStream();
  stream.send(aMessage("x".repeat(200_000)));

  stream.send(aMessage("y".repeat(100_000)));

  assert.equal(closed.times, 1);
  assert.equal(await take(), null);
});

Deno.test("EventStream.ready() waits for the reader if there is no room for so much more", async () => {
  const { stream, take } = aStream();
  stream.send(aMessage("x".repeat(20_000)));

  const fitting = stream.ready(200_000);
  const large = stream.ready(MAX_QUEUED_BYTES);
  await take();
  await large;

  assert.deepEqual([fitting, stream.ready(4 * MAX_QUEUED_BYTES)], [null, null]);
  stream.close();
});

Deno.test("EventStream counts nothing that was superseded or read", async () => {
  const { stream, closed, take } = aStream();
  const large = "x".repeat(MAX_QUEUED_BYTES - 10);

  for (let n = 0; n < 100; n++) stream.send(aMessage(large, "progress"));
  const first = await take();
  for (let n = 0; n < 100; n++) stream.send(aMessage(large, "progress"));

  assert.equal(closed.times, 0);
  assert.deepEqual([first, await take()].map((chunk) => chunk!.length), [1, 1]);
  stream.close();
});

Deno.test("EventStream sends a message that is larger than all that may wait", async () => {
  const { stream, closed, take } = aStream();
  const large = "x".repeat(4 * MAX_QUEUED_BYTES);

  stream.send(aMessage("small"));
  stream.send(aMessage(large));
  stream.end();

  assert.deepEqual(await take(), ["small", large]);
  assert.equal(await take(), null);
  assert.equal(closed.times, 1);
});

Deno.test("EventStream.end() lets everything be read that was sent before, and takes nothing more", async () => {
  const { stream, closed, take } = aStream();
  stream.send(aMessage("a"));

  stream.end();
  stream.send(aMessage("b"));
  stream.keepAlive();
  const closedAtOnce = closed.times;

  assert.deepEqual([await take(), await take()], [["a"], null]);
  assert.deepEqual([closedAtOnce, closed.times], [0, 1]);
});

Deno.test("EventStream.keepAlive() does not wait for ever for who does not read the rest", async () => {
  const { stream, closed, take } = aStream();
  stream.send(aMessage("a"));
  stream.end();

  stream.keepAlive();
  const closedAtFirst = closed.times;
  stream.keepAlive();

  assert.deepEqual([closedAtFirst, closed.times], [0, 1]);
  assert.equal(await take(), null);
});

Deno.test("EventStream.end() ends a stream at once whose reader waits", async () => {
  const { stream, closed, reader } = aStream();
  const reading = reader.read();

  stream.end();
  stream.end();

  assert.equal((await reading).done, true);
  assert.equal(closed.times, 1);
});

Deno.test("EventStream.close() drops what was not read", async () => {
  const { stream, closed, take } = aStream();
  stream.send(aMessage("a"));

  stream.close();
  stream.close();

  assert.equal(await take(), null);
  assert.equal(closed.times, 1);
});

Deno.test("EventStream.keepAlive() sends a comment, unless something waits to be read", async () => {
  const { stream, take } = aStream();

  stream.keepAlive();
  stream.keepAlive();
  const idle = await take();
  stream.send(aMessage("a"));
  stream.keepAlive();

  assert.deepEqual([idle, await take()], [[": keep-alive"], ["a"]]);
  stream.close();
});

Deno.test("EventStream closes once when its reader goes away, and then takes nothing", async () => {
  const { stream, closed, reader } = aStream();
  stream.send(aMessage("a"));

  await reader.cancel();
  stream.send(aMessage("b"));
  stream.keepAlive();
  stream.end();
  stream.close();

  assert.equal(closed.times, 1);
  assert.equal((await reader.read()).done, true);
});

Deno.test("EventStream closes when its reader goes away while it waits", async () => {
  const { stream, closed, reader } = aStream();
  const reading = reader.read();

  await reader.cancel();
  stream.send(aMessage("b"));

  assert.equal((await reading).done, true);
  assert.equal(closed.times, 1);
});

Deno.test("EventStream.toResponse() tells caches and proxies to pass everything on at once", async () => {
  const response = new EventStream(() => {}).toResponse();

  assert.equal(response.status, 200);
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  assert.equal(response.headers.get("cache-control"), "no-cache, no-transform");
  assert.equal(response.headers.get("x-accel-buffering"), "no");
  assert.equal(response.headers.get("x-content-type-options"), "nosniff");
  await response.body!.cancel();
});
