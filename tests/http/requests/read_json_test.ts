import assert from "node:assert/strict";
import { uuidV7 } from "../../../src/model/host.ts";
import { forever } from "../../support/stores/for_each_store.ts";
import { aService, type Service } from "../../support/http/http.ts";

const TRIGGER = '{"jobName":"echo","input":{"n":1}}';

function trigger(service: Service, body?: BodyInit, headers: Record<string, string> = {}) {
  return service.ask("POST", "/trigger", { headers, ...(body === undefined ? {} : { body }) });
}

/** A body that sends pieces, then stalls or ends, and tells whether it was cancelled. */
function aStream(pieces: Iterable<Uint8Array>, options: { isStalled?: boolean } = {}) {
  const iterator = pieces[Symbol.iterator]();
  const state = { isCancelled: false, sent: 0 };
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      const { done, value } = iterator.next();
      if (done) return options.isStalled ? forever() : controller.close();
      state.sent += value.length;
      return controller.enqueue(value);
    },
    cancel: () => void (state.isCancelled = true),
  }, { highWaterMark: 0 });
  return { stream, state };
}

function* blanks(): Generator<Uint8Array> {
  while (true) yield new Uint8Array(1_024).fill(0x20);
}

const bytesOf = (text: string) => new TextEncoder().encode(text);

const NO_JSON: Record<string, BodyInit | undefined> = {
  "no body": undefined,
  "an empty body": "",
  "blanks": " \n",
  "half an object": "{",
  "a trailing comma": '{"jobName":"echo","input":{},}',
  "NaN": '{"jobName":"echo","input":{"n":NaN}}',
  "two values": `${TRIGGER}${TRIGGER}`,
  "a form": "jobName=echo&input=1",
  "a byte order mark": `\ufeff${TRIGGER}`,
  "UTF-16": new Uint8Array(new Uint16Array([...TRIGGER].map((letter) => letter.charCodeAt(0))).buffer),
  "invalid UTF-8": new Uint8Array([...bytesOf('{"jobName":"echo","input":{"a":"'), 0xc3, 0x28, ...bytesOf('"}}')]),
  "half a letter at the end": new Uint8Array([...bytesOf('{"jobName":"echo","input":{"a":"'), 0xc3]),
  "a surrogate in UTF-8": new Uint8Array([...bytesOf('{"jobName":"echo","input":{"a":"'), 0xed, 0xa0, 0x80]),
  "an infinite number": '{"jobName":"echo","input":{"n":[1e999]}}',
  "a number infinitely small": '{"jobName":"echo","input":{"n":-1e999}}',
  "an infinite number in a field that is ignored": '{"jobName":"echo","input":{},"x":1e999}',
  "a million levels": `{"jobName":"echo","input":{"a":${"[".repeat(400_000)}${"]".repeat(400_000)}}}`,
  "a million levels that do not end": "[".repeat(1_000_000),
};

for (const [what, body] of Object.entries(NO_JSON)) {
  Deno.test(`POST /trigger answers 400 to ${what}`, async () => {
    await using service = aService();

    const answer = await trigger(service, body);

    assert.deepEqual([answer.status, answer.body.code], [400, "invalid_request"]);
    assert.equal((await service.engine.getRuns()).total, 0);
  });
}

for (const body of ["null", "[]", '"x"', "1", "true", `[${TRIGGER}]`]) {
  Deno.test(`POST /trigger and POST /signal answer 400 to the body ${body}`, async () => {
    await using service = aService();

    const answers = [await trigger(service, body), await service.ask("POST", "/signal?runId=a&waitId=b", { body })];

    for (const { status, body } of answers) {
      assert.deepEqual([status, body.code, body.issues.length], [400, "invalid_request", 1]);
    }
  });
}

for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", "nonsense", ""]) {
  Deno.test(`POST /trigger takes JSON whose Content-Type is "${type}"`, async () => {
    await using service = aService();

    const { status } = await trigger(service, TRIGGER, { "content-type": type });

    assert.equal(status, 200);
  });
}

Deno.test("POST /trigger takes the last of two keys of one name, for the job as for the record", async () => {
  await using service = aService();

  const { body } = await trigger(
    service,
    '{"jobName":"fail","jobName":"echo","input":{"n":1,"n":2},"input":{"n":3,"n":4}}',
  );
  await service.engine.runUntilIdle();

  const run = (await service.engine.getRun(body.runId))!;
  assert.deepEqual([run.jobName, run.payload, run.output], ["echo", { n: 4 }, { n: 4 }]);
});

Deno.test("POST /trigger takes a hundred thousand keys in one object", async () => {
  await using service = aService();
  const input = Object.fromEntries(Array.from({ length: 100_000 }, (_, n) => [n.toString(36), 1]));

  const { status } = await trigger(service, JSON.stringify({ jobName: "echo", input }));

  assert.equal(status, 200);
});

Deno.test("POST /trigger takes JSON of 64 levels, and none deeper", async () => {
  await using service = aService();
  const nested = (levels: number) =>
    `{"jobName":"echo","input":${'{"a":'.repeat(levels - 2)}{}${"}".repeat(levels - 1)}`;

  const fits = await trigger(service, nested(64));
  const tooDeep = await trigger(service, nested(65));
  const scalars = await trigger(service, nested(64).replace("{}", '{"a":1}'));

  assert.deepEqual([fits.status, tooDeep.status, scalars.status], [200, 400, 200]);
  assert.match(tooDeep.body.error, /64 levels/);
});

Deno.test("POST /trigger takes JSON as deep as it is told to", async () => {
  await using flat = aService({ limits: { maxJsonDepth: 2 } });
  await using deep = aService({ limits: { maxJsonDepth: 1_000 } });
  const nested = `{"jobName":"echo","input":${'{"a":'.repeat(998)}{}${"}".repeat(999)}`;

  const statuses = [
    (await trigger(flat, TRIGGER)).status,
    (await trigger(flat, '{"jobName":"echo","input":{"a":[]}}')).status,
    (await trigger(deep, nested)).status,
  ];

  assert.deepEqual(statuses, [200, 400, 200]);
});

for (const encoding of ["gzip", "br", "deflate", "gzip, identity", "nonsense", ""]) {
  Deno.test(`POST /trigger answers 415 to a Content-Encoding "${encoding}"`, async () => {
    await using service = aService();
    const { stream, state } = aStream([bytesOf(TRIGGER)]);

    const { status, body } = await trigger(service, stream, { "content-encoding": encoding });

    assert.deepEqual([status, body.code, state.sent], [415, "unsupported_encoding", 0]);
  });
}

for (const encoding of ["identity", "Identity"]) {
  Deno.test(`POST /trigger takes a Content-Encoding "${encoding}"`, async () => {
    await using service = aService();

    assert.equal((await trigger(service, TRIGGER, { "content-encoding": encoding })).status, 200);
  });
}

Deno.test("POST /trigger answers 413 before it reads a body that says how large it is", async () => {
  await using service = aService();
  const { stream, state } = aStream(blanks());

  const { status, body } = await trigger(service, stream, { "content-length": "1048577" });

  assert.deepEqual([status, body.code], [413, "body_too_large"]);
  assert.deepEqual(state, { isCancelled: true, sent: 0 });
});

Deno.test("POST /trigger answers 413 as soon as a body has become too large", async () => {
  await using service = aService();
  const { stream, state } = aStream(blanks());

  const { status, body } = await trigger(service, stream);

  assert.deepEqual([status, body.code], [413, "body_too_large"]);
  assert.deepEqual(state, { isCancelled: true, sent: 1_048_576 + 1_024 });
});

Deno.test("POST /trigger counts bytes, and takes as many as it is told to", async () => {
  const body = '{"jobName":"echo","input":{"a":"ééé"}}';
  const bytes = bytesOf(body).length;
  await using service = aService({ limits: { maxBodyBytes: bytes } });
  await using smaller = aService({ limits: { maxBodyBytes: bytes - 1 } });

  const fits = await trigger(service, body);
  const tooLarge = await trigger(smaller, body);

  assert.deepEqual([fits.status, tooLarge.status], [200, 413]);
});

Deno.test("POST /trigger reads a body that comes in pieces, even of letters", async () => {
  await using service = aService();
  const bytes = bytesOf('{"jobName":"echo","input":{"a":"é💩"}}');
  const { stream } = aStream(Array.from(bytes, (byte) => new Uint8Array([byte])));

  const { status, body } = await trigger(service, stream);

  assert.equal(status, 200);
  assert.deepEqual((await service.engine.getRun(body.runId))!.payload, { a: "é💩" });
});

for (const [what, pieces] of Object.entries({ "at once": [], "in the middle": [bytesOf('{"jobName":')] })) {
  Deno.test(`POST /trigger answers 408 after 10 seconds to a body that stalls ${what}`, async () => {
    await using service = aService();
    const { stream, state } = aStream(pieces, { isStalled: true });
    let isAnswered = false;

    const asked = trigger(service, stream).finally(() => isAnswered = true);
    await service.host.settle();
    service.host.advance(9_999);
    await service.host.settle();
    const wasAnswered = isAnswered;
    service.host.advance(1);
    const { status, body } = await asked;

    assert.deepEqual([wasAnswered, status, body.code], [false, 408, "body_timeout"]);
    assert.equal(state.isCancelled, true);
  });
}

Deno.test("POST /trigger answers 408 to a body that trickles, complete or not", async () => {
  await using service = aService();
  const pieces = [...TRIGGER].map((letter) => bytesOf(letter));
  const stream = new ReadableStream<Uint8Array>({
    async pull(controller) {
      await service.host.settle(1);
      service.host.advance(1_000);
      const piece = pieces.shift();
      if (piece === undefined) controller.close();
      else controller.enqueue(piece);
    },
  }, { highWaterMark: 0 });

  const { status } = await trigger(service, stream);

  assert.equal(status, 408);
  assert.equal((await service.engine.getRuns()).total, 0);
});

Deno.test("POST /trigger stores nothing if the client leaves in the middle of the body", async () => {
  const heard: unknown[] = [];
  await using service = aService({ onError: (error) => heard.push(error) });
  const stream = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(bytesOf(TRIGGER)),
    pull: (controller) => controller.error(new TypeError("connection reset")),
  });

  const { status } = await trigger(service, stream);

  assert.deepEqual([status, heard], [400, []]);
  assert.equal((await service.engine.getRuns()).total, 0);
});

Deno.test("POST /trigger says so if somebody else has read the body", async () => {
  const heard: unknown[] = [];
  await using service = aService({ onError: (error) => heard.push(error) });
  const request = new Request("http://localhost/trigger", { method: "POST", body: TRIGGER });
  await request.text();

  const response = await service.handler.fetch(request);

  assert.equal(response.status, 500);
  assert.match(String(heard[0]), /was read before/);
});

Deno.test("POST /trigger says that a body was read before if it is empty and its Content-Length is not 0", async () => {
  await using service = aService();

  const { status, body } = await trigger(service, "", { "content-length": `${TRIGGER.length}` });

  assert.equal(status, 400);
  assert.match((body as { error: string }).error, /was it read before .* express\.json\(\)/);
});

for (const path of ["/retrigger", "/retry", "/cancel", "/resume"]) {
  Deno.test(`POST ${path} reads no more than the beginning of its body, and ignores it`, async () => {
    await using service = aService();
    const { stream, state } = aStream(blanks());

    const { status } = await service.ask("POST", `${path}?runId=${uuidV7(0)}`, { body: stream });

    assert.deepEqual([status, state.sent <= 4_096 + 1_024], [404, true]);
  });
}
