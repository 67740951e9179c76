import assert from "node:assert/strict";
import { aService } from "../../support/http/http.ts";

type Case = [headers: Record<string, string>, isAllowed: boolean];

const CASES: Record<string, Case> = {
  "without any of these headers": [{}, true],
  "of the same origin": [{ "sec-fetch-site": "same-origin", origin: "http://localhost" }, true],
  "of the user alone": [{ "sec-fetch-site": "none" }, true],
  "of another site": [{ "sec-fetch-site": "cross-site", origin: "https://evil.example" }, false],
  "of another site that names no origin": [{ "sec-fetch-site": "cross-site" }, false],
  "of another origin of the site": [{ "sec-fetch-site": "same-site", origin: "http://www.localhost" }, false],
  "of another site that names the host as its origin": [
    { "sec-fetch-site": "cross-site", origin: "http://localhost" },
    false,
  ],
  "with a word that nobody knows": [{ "sec-fetch-site": "Same-Origin" }, false],
  "with an empty word": [{ "sec-fetch-site": "" }, false],
  "of an older browser, and the same origin": [{ origin: "http://localhost" }, true],
  "of an older browser, behind a proxy that ends TLS": [{ origin: "https://localhost" }, true],
  "of an older browser, and another origin": [{ origin: "https://evil.example" }, false],
  "of an older browser, and another port": [{ origin: "http://localhost:8080" }, false],
  "of an older browser, and a longer host": [{ origin: "http://localhost.evil.example" }, false],
  "of an older browser, and a sandboxed page": [{ origin: "null" }, false],
  "with an origin that is none": [{ origin: "localhost" }, false],
};

for (const [what, [headers, isAllowed]] of Object.entries(CASES)) {
  Deno.test(`a request to change something ${what} is ${isAllowed ? "carried out" : "refused"}`, async () => {
    await using service = aService();
    const { id } = await service.engine.trigger("approval", {});

    const triggered = await service.ask("POST", "/trigger", { headers, body: '{"jobName":"echo","input":{}}' });
    const cancelled = await service.ask("POST", `/cancel?runId=${id}`, { headers });
    const deleted = await service.ask("DELETE", `/run?runId=${id}`, { headers });

    const answers = [triggered, cancelled, deleted];
    assert.deepEqual(answers.map(({ status }) => status), Array(3).fill(isAllowed ? 200 : 403));
    if (isAllowed) return;
    for (const { body } of answers) {
      assert.deepEqual(body, { error: "Requests from pages of another origin are not allowed", code: "cross_origin" });
    }
    assert.equal((await service.engine.getRun(id))!.status, "pending");
    assert.equal((await service.engine.getRuns()).total, 1);
  });
}

Deno.test("a request to change something passes if its origin is trusted", async () => {
  await using service = aService({ trustedOrigins: ["https://app.example", "https://other.example:8443"] });
  const { id } = await service.engine.trigger("echo", {});
  const cancel = async (origin: string | null, site = "cross-site") => {
    const headers = { "sec-fetch-site": site, ...(origin === null ? {} : { origin }) };
    return (await service.ask("POST", `/cancel?runId=${id}`, { headers })).status;
  };

  const statuses = {
    other: await cancel("https://evil.example"),
    scheme: await cancel("http://app.example"),
    port: await cancel("https://other.example"),
    longer: await cancel("https://app.example.evil.example"),
    part: await cancel("https://app"),
    sandboxed: await cancel("null"),
    none: await cancel(null),
    trusted: await cancel("https://app.example"),
    sameSite: await cancel("https://other.example:8443", "same-site"),
  };

  assert.deepEqual(statuses, {
    other: 403,
    scheme: 403,
    port: 403,
    longer: 403,
    part: 403,
    sandboxed: 403,
    none: 403,
    trusted: 200,
    sameSite: 409,
  });
});

Deno.test("a request to change something passes from anywhere if every origin is trusted", async () => {
  await using service = aService({ trustedOrigins: "*" });
  const asked: Record<string, string>[] = [{ origin: "https://a.example" }, { "sec-fetch-site": "cross-site" }];

  const answers = await Promise.all(
    asked.map((headers) => service.ask("POST", "/trigger", { headers, body: { jobName: "echo", input: {} } })),
  );

  assert.deepEqual(answers.map(({ status }) => status), [200, 200]);
});

Deno.test("a request that only reads passes from anywhere, without CORS headers", async () => {
  await using service = aService();
  const headers = { "sec-fetch-site": "cross-site", origin: "https://evil.example" };

  const read = await service.ask("GET", "/runs", { headers });
  const preflight = await service.ask("OPTIONS", "/trigger", { headers });
  const head = await service.ask("HEAD", "/runs", { headers });

  assert.deepEqual([read.status, preflight.status, head.status], [200, 405, 405]);
  for (const answer of [read, preflight, head]) {
    assert.deepEqual([...answer.headers.keys()].filter((name) => name.startsWith("access-control")), []);
  }
});
