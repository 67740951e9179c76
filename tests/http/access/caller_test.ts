import assert from "node:assert/strict";
import { callHook, HookError } from "../../../src/http/access/caller.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { forever } from "../../support/stores/for_each_store.ts";
import { aService } from "../../support/http/http.ts";

Deno.test("callHook() answers what the hook answers", async () => {
  const host = new FakeHost();

  assert.equal(await callHook("hook", () => 1, host), 1);
  assert.equal(await callHook("hook", () => Promise.resolve(2), host), 2);
});

Deno.test("callHook() keeps what the hook threw", async () => {
  const thrown = new Error("broken");

  const called = callHook("onRequest", () => Promise.reject(thrown), new FakeHost());

  await assert.rejects(called, (error: Error) => error instanceof HookError && error.cause === thrown);
});

Deno.test("callHook() gives up after 30 seconds", async () => {
  const host = new FakeHost();
  let isOver = false;

  const called = callHook("onRequest", forever, host).finally(() => isOver = true);
  called.catch(() => {});
  host.advance(29_999);
  await host.settle();
  const wasOver = isOver;
  host.advance(1);

  await assert.rejects(called, (error: Error) => /onRequest takes more than 30000 ms/.test(String(error.cause)));
  assert.equal(wasOver, false);
});

Deno.test("fetch() answers 500 if onRequest takes too long, and does nothing", async () => {
  await using service = aService({ onRequest: forever, onError: () => {} });

  const asked = service.ask("POST", "/trigger", { body: { jobName: "echo", input: {} } });
  await service.host.settle();
  service.host.advance(30_000);
  const { status, body } = await asked;

  assert.deepEqual([status, body.code], [500, "internal"]);
  assert.equal((await service.engine.getRuns()).total, 0);
});

Deno.test("fetch() passes on a Response that onRequest throws, as it is, and again", async () => {
  const thrown = new Response("later", { status: 429, headers: { "retry-after": "7" } });
  const heard: unknown[] = [];
  await using service = aService({
    onRequest: () => {
      throw thrown;
    },
    onError: (error) => heard.push(error),
  });

  const ask = () => service.handler.fetch(new Request("http://localhost/nowhere"));
  const responses = [await ask(), await ask(), await ask()];
  const texts = await Promise.all(responses.map((response) => response.text()));

  assert.equal(responses[0], thrown);
  for (const response of responses) {
    assert.deepEqual([response.status, [...response.headers]], [429, [...thrown.headers]]);
  }
  assert.deepEqual(texts, ["later", "later", "later"]);
  assert.deepEqual(heard, []);
});

Deno.test("fetch() answers 500 if onRequest throws a Response that cannot be sent", async () => {
  const used = new Response("once");
  await used.text();
  const heard: unknown[] = [];

  for (const thrown of [used, Response.error()]) {
    await using service = aService({
      onRequest: () => Promise.reject(thrown),
      onError: (error) => heard.push(error),
    });
    assert.equal((await service.ask("GET", "/runs")).status, 500);
  }

  assert.match(String(heard[0]), /cannot be sent/);
  assert.equal(heard.length, 2);
});
