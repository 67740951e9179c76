import assert from "node:assert/strict";
import { aRequest, aService } from "../../support/http/http.ts";

const ALLOWED = [
  "localhost",
  "127.0.0.1",
  "[::1]",
  "App.Example.com",
  "b\u00fcro.example",
  "one.example:8080",
  "two.example:80",
];

const CASES: [host: string, isAllowed: boolean][] = [
  ["localhost", true],
  ["LocalHost", true],
  ["localhost:1", true],
  ["localhost:65535", true],
  ["127.0.0.1:8000", true],
  ["[::1]", true],
  ["[::1]:8000", true],
  ["[0:0:0:0:0:0:0:1]:8000", true],
  ["app.example.com", true],
  ["xn--bro-hoa.example", true],
  ["one.example:8080", true],
  ["one.example:08080", true],
  ["two.example", true],
  ["two.example:80", true],
  ["one.example", false],
  ["one.example:80", false],
  ["two.example:8080", false],
  ["evil.example", false],
  ["localhost.evil.example", false],
  ["evil.localhost", false],
  ["localhost.", false],
  ["127.0.0.2", false],
  ["[::2]", false],
  ["localhost, evil.example", false],
  ["user@localhost", false],
  ["localhost:", false],
  ["localhost:99999", false],
  ["", false],
];

for (const [host, isAllowed] of CASES) {
  Deno.test(`a request with the Host "${host}" is ${isAllowed ? "answered" : "refused"}`, async () => {
    let calls = 0;
    await using service = aService({
      allowedHosts: ALLOWED,
      auth: { authenticate: () => void calls++, onTrigger() {}, onRunAccess() {}, scopeRuns: () => ({}) },
    });

    const { status, body } = await service.ask("GET", "/runs", { headers: { host } });

    assert.deepEqual([status, calls], isAllowed ? [200, 1] : [421, 0]);
    if (!isAllowed) {
      assert.deepEqual(body, { error: "The Host of the request is not one of allowedHosts", code: "unknown_host" });
    }
  });
}

Deno.test("a request without a Host is judged by its URL", async () => {
  await using service = aService({ allowedHosts: ["localhost", "tls.example:443"] });
  const ask = async (url: string) => (await service.handler.fetch(new Request(url))).status;

  const statuses = [
    await ask("http://localhost/runs"),
    await ask("http://localhost:81/runs"),
    await ask("http://evil.example/runs"),
    await ask("https://tls.example/runs"),
    await ask("http://tls.example/runs"),
  ];

  assert.deepEqual(statuses, [200, 200, 421, 200, 421]);
});

Deno.test("every route and every function refuses an unknown Host, and an unknown path does too", async () => {
  await using service = aService({ allowedHosts: [] });
  const { fetch, handle, runs, trigger } = service.handler;

  const responses = [
    await fetch(aRequest("GET", "/runs")),
    await fetch(aRequest("GET", "/nowhere")),
    await fetch(aRequest("GET", "/runs/subscribe")),
    await handle(aRequest("GET", "/x/runs"), "/x"),
    await runs(aRequest("GET", "/anywhere")),
    await trigger(aRequest("POST", "/anywhere", { body: { jobName: "echo", input: {} } })),
  ];

  assert.deepEqual(responses.map(({ status }) => status), Array(6).fill(421));
  assert.equal((await service.engine.getRuns()).total, 0);
});

Deno.test("any Host is answered without allowedHosts", async () => {
  await using service = aService();

  const { status } = await service.ask("GET", "/runs", { headers: { host: "evil.example" } });

  assert.equal(status, 200);
});
