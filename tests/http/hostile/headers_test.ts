import assert from "node:assert/strict";
import { aGuardedService, allRoutes, provoke } from "../../support/http/hostile.ts";
import { aRequest, aService, aWaitingRun } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";

const ODD_HEADERS: Record<string, string>[] = [
  { accept: "text/html;q=0.9, */*;q=nonsense", "accept-language": "x-klingon, *;q=-1", "accept-charset": "utf-7" },
  { range: "bytes=0-0", "if-range": '"a"', "if-none-match": "*", "if-modified-since": "yesterday", "if-match": '"x"' },
  { "last-event-id": "42", "cache-control": "only-if-cached", te: "trailers", expect: "100-continue" },
  { "last-event-id": "../../x", "x-http-method-override": "DELETE", "x-forwarded-host": "evil.example" },
  { "x-original-url": "/cancel", "x-rewrite-url": "/cancel", forwarded: "for=evil;host=evil.example", prefer: "x" },
  { cookie: "a=b; __proto__=c; =; ;;", authorization: "Basic \u00ff\u00fe", "content-type": "\u00e9;charset=utf-16" },
];

for (const headers of ODD_HEADERS) {
  Deno.test(`fetch() answers the same whatever these headers say: ${Object.keys(headers).join(", ")}`, async () => {
    await using service = aService();
    const { id } = await service.engine.trigger("echo", {});
    const ask = async (given: Record<string, string>) => {
      const answers = [
        await provoke(service, "GET", `/run?runId=${id}`, { headers: given }),
        await provoke(service, "GET", "/runs?limit=1", { headers: given }),
        await provoke(service, "GET", "/nowhere", { headers: given }),
      ];
      return answers.map(({ status, body, headers }) => ({ status, body, headers: [...headers] }));
    };
    const plain = await ask({});

    const answers = await ask(headers);
    const triggered = await provoke(service, "POST", "/trigger", { headers, body: '{"jobName":"echo","input":{}}' });
    const stream = await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`, { headers }));
    await stream.body!.cancel();

    assert.deepEqual(answers, plain);
    assert.deepEqual([triggered.status, stream.status], [200, 200]);
    assert.equal((await service.engine.getRun(id))!.status, "pending");
  });
}

Deno.test("a page of another site cancels nothing with the cookies of its visitor", async () => {
  const authenticate = ({ headers }: Request) => {
    if (headers.get("cookie") !== "session=ada") throw new Response(null, { status: 401 });
  };
  await using service = aGuardedService({ authenticate });
  const { runId } = await aWaitingRun(service);
  const pages: Record<string, string>[] = [
    { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" },
    { origin: "https://evil.example", "content-type": "text/plain" },
    { origin: "null", "content-type": "application/x-www-form-urlencoded" },
  ];

  const answers = [];
  for (const page of pages) {
    const headers = { cookie: "session=ada", ...page };
    answers.push(await provoke(service, "POST", `/cancel?runId=${runId}`, { headers }));
    answers.push(await provoke(service, "POST", "/trigger", { headers, body: '{"jobName":"echo","input":{}}' }));
  }
  const own = await service.ask("POST", `/cancel?runId=${runId}`, { headers: { cookie: "session=ada" } });

  assert.deepEqual([...new Set(answers.map(({ status, body }) => `${status} ${body.code}`))], ["403 cross_origin"]);
  assert.equal(own.status, 200);
  assert.equal((await service.engine.getRuns()).total, 1);
});

Deno.test("no text of a run comes into a header", async () => {
  const name = "büro-💩\u2028";
  const breaks = aJob((step) => {
    step.progress(1, 2, "\r\nset-cookie: a=b");
    throw new Error("\r\nset-cookie: a=b \u0100");
  }, name);
  await using service = aService({}, undefined, { breaks });
  const triggered = await provoke(service, "POST", "/trigger", {
    body: { jobName: name, input: {}, labels: { org: "\u0100💩" }, idempotencyKey: "é\u0100", concurrencyKey: "💩" },
  });
  await service.engine.runUntilIdle();
  const query = `runId=${triggered.body.runId}&waitId=%0d%0aset-cookie:a&label.org=%C4%80`;

  const answers = [triggered];
  for (const [handlerName, { method, path }] of allRoutes) {
    if (handlerName !== "delete" && !path.endsWith("subscribe")) {
      answers.push(await provoke(service, method, `${path}?${query}`));
    }
  }
  answers.push(await provoke(service, "DELETE", `/run?${query}`));

  assert.equal(answers.length, allRoutes.length - 1);
  assert.deepEqual(new Set(answers.flatMap(({ headers }) => [...headers.values()])).size, 5);
});
