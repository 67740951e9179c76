import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { forEachStore, forever } from "../../support/stores/for_each_store.ts";
import {
  aGuardedService,
  assertWell,
  aStreamedRequest,
  bytesOf,
  MEMBERS,
  provoke,
  SIGNAL,
} from "../../support/http/hostile.ts";
import { aService, aWaitingRun } from "../../support/http/http.ts";

const WRONG_SIGNAL_BODIES: Record<string, [status: number, body?: BodyInit, encoding?: string]> = {
  "no body": [400],
  "an empty body": [400, ""],
  "half an object": [400, "{"],
  "a trailing comma": [400, '{"signalId":"s","payload":1,}'],
  "NaN": [400, '{"signalId":"s","payload":NaN}'],
  "a byte order mark": [400, `\ufeff${SIGNAL}`],
  "UTF-16": [400, new Uint8Array(new Uint16Array([...SIGNAL].map((letter) => letter.charCodeAt(0))).buffer)],
  "invalid UTF-8": [400, new Uint8Array([...bytesOf('{"signalId":"s","payload":"'), 0xff, ...bytesOf('"}')])],
  "an infinite payload": [400, '{"signalId":"s","payload":1e999}'],
  "an infinite number deep in the payload": [400, '{"signalId":"s","payload":[{"a":-1e999}]}'],
  "a payload of 64 levels": [400, `{"signalId":"s","payload":${"[".repeat(64)}${"]".repeat(64)}}`],
  "a payload of half a million levels": [
    400,
    `{"signalId":"s","payload":${"[".repeat(500_000)}${"]".repeat(500_000)}}`,
  ],
  "a payload of more than 1 MiB": [413, `{"signalId":"s","payload":"${"x".repeat(1_048_576)}"}`],
  "a gzip body": [415, SIGNAL, "gzip"],
  "a signal for a prototype": [400, '{"__proto__":{"signalId":"s","payload":1}}'],
  "a payload in a prototype": [400, '{"signalId":"s","__proto__":{"payload":1}}'],
};

for (const [what, [expected, body, encoding]] of Object.entries(WRONG_SIGNAL_BODIES)) {
  Deno.test(`POST /signal answers ${expected} to ${what}`, async () => {
    await using service = aService();
    const { waitId, query } = await aWaitingRun(service);
    const headers: Record<string, string> = encoding === undefined ? {} : { "content-encoding": encoding };

    const answer = await provoke(service, "POST", `/signal?${query}`, {
      headers,
      ...(body === undefined ? {} : { body }),
    });

    const codes: Record<number, string> = {
      400: "invalid_request",
      413: "body_too_large",
      415: "unsupported_encoding",
    };
    assert.deepEqual([answer.status, answer.body.code], [expected, codes[expected]]);
    assert.equal((await service.engine.getWait(waitId))!.status, "pending");
    await assertWell(service);
  });
}

Deno.test("POST /signal answers 408 to a body that stalls, and keeps the wait open", async () => {
  await using service = aService();
  const { waitId, query } = await aWaitingRun(service);
  const stalled = new ReadableStream<Uint8Array>({ pull: forever });

  const answering = service.handler.fetch(aStreamedRequest(`/signal?${query}`, stalled));
  await service.host.settle();
  service.host.advance(10_000);
  const response = await answering;

  assert.deepEqual([response.status, (await response.json()).code], [408, "body_timeout"]);
  assert.equal((await service.engine.getWait(waitId))!.status, "pending");
  await assertWell(service);
});

for (const length of ["-1", "x", "1e3", "0x10", "5, 5", " 7 ", "0", "18446744073709551616", "Infinity"]) {
  Deno.test(`POST /trigger survives a Content-Length "${length}"`, async () => {
    await using service = aService();

    const { status } = await provoke(service, "POST", "/trigger", {
      headers: { "content-length": length },
      body: '{"jobName":"echo","input":{}}',
    });

    // What a server could believe is looked at before the body is read; the rest is for the server to refuse.
    assert.equal(status, Number(length) > 1_048_576 ? 413 : 200);
    await assertWell(service);
  });
}

Deno.test("POST /trigger shows hooks the same of two keys of one name as it stores", async () => {
  const seen: unknown[] = [];
  await using service = aGuardedService({
    onTrigger: (_context, { jobName, input, labels }) => seen.push({ jobName, input, labels }),
  });

  const { body } = await provoke(service, "POST", "/trigger", {
    body: '{"jobName":"fail","jobName":"echo","input":{"n":1},"input":{"n":2,"n":3},"labels":{"org":"b","org":"a"}}',
  });

  const run = (await service.engine.getRun(body.runId))!;
  assert.deepEqual(seen, [{ jobName: run.jobName, input: run.payload, labels: run.labels }]);
  assert.deepEqual(seen, [{ jobName: "echo", input: { n: 3 }, labels: { org: "a" } }]);
});

Deno.test("POST /trigger rounds an integer beyond 2^53 as JSON does, unless a schema refuses it", async () => {
  const whole = defineJob({ name: "whole", input: z.object({ n: z.int() }), run: () => {} });
  await using service = aService({}, undefined, { whole });
  const trigger = (jobName: string) =>
    provoke(service, "POST", "/trigger", { body: `{"jobName":"${jobName}","input":{"n":9007199254740993}}` });

  const [loose, strict] = [await trigger("echo"), await trigger("whole")];

  assert.deepEqual([loose.status, strict.status, strict.body.code], [200, 400, "invalid_input"]);
  assert.deepEqual((await service.engine.getRun(loose.body.runId))!.payload, { n: 9007199254740992 });
});

forEachStore("inputs and payloads keep texts and keys exactly, hooks or not", async (context) => {
  const seen: unknown[] = [];
  await using service = aGuardedService({
    onTrigger: (_context, { input }) => seen.push(input),
    onSignal: (_context, _run, _wait, { payload }) => seen.push(payload),
  }, context);
  const { waitId, query } = await aWaitingRun(service);
  const text = `{"a\\u0000":"\\u0000 \\ud800 \\u2028",${
    MEMBERS.map((name) => `"${name}":{"${name}":{"polluted":true}}`).join()
  }}`;

  const trigger = await provoke(service, "POST", "/trigger", { body: `{"jobName":"echo","input":${text}}` });
  const signal = await provoke(service, "POST", `/signal?${query}`, { body: `{"signalId":"s","payload":${text}}` });
  await service.engine.runUntilIdle();

  const run = await provoke(service, "GET", `/run?runId=${trigger.body.runId}`);
  const wait = (await service.engine.getWait(waitId))!;
  const kept = [run.body.input, run.body.output, signal.body.wait.payload, wait.payload, ...seen];
  for (const value of kept) assert.equal(JSON.stringify(value), JSON.stringify(JSON.parse(text)));
  assert.equal(kept.length, 6);
  assert.equal(({} as { polluted?: boolean }).polluted, undefined);
  await assertWell(service);
});
