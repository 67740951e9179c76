import assert from "node:assert/strict";
import { Webhook } from "standardwebhooks";
import { createTestEngine } from "../../src/testing/create_test_engine.ts";
import { crashAtEveryCheckpoint } from "../../src/testing/crashes/crash_at_every_checkpoint.ts";
import { webhookJob, type WebhookJobOptions } from "../../src/webhooks/webhook_job.ts";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW_SECRET = "whsec_bmV3IHNlY3JldCBvZiAyNCBieXRlcw==";
const URL_OF_SHOP = "https://shop.example/private-path";
const INPUT = { endpoint: "shop-7", type: "refund.paid", data: { order: "o-1", cents: 1_250 } };
const HOUR_MS = 3_600_000;

/** A request that a receiver got. */
interface Sent {
  at: number;
  url: string;
  id: string;
  body: string;
  headers: Record<string, string>;
  init: RequestInit;
}

/** What a receiver answers to a request, the first one is 1. */
type Answer = (n: number) => Response | Promise<Response>;

/** An engine with a job that delivers to a receiver that answers so. */
function aDelivery(answer: Answer, options: Partial<WebhookJobOptions> = {}) {
  const sent: Sent[] = [];
  const clock = { now: () => 0 };
  const deliver = webhookJob({
    name: "deliver",
    endpoint: () => ({ url: URL_OF_SHOP, secret: SECRET }),
    resolve: () => Promise.resolve(["93.184.215.14"]),
    fetch: (url, init) => {
      const headers = init.headers as Record<string, string>;
      sent.push({ at: clock.now(), url, id: headers["webhook-id"]!, body: String(init.body), headers, init });
      return Promise.resolve(answer(sent.length));
    },
    ...options,
  });
  const t = createTestEngine({ jobs: { deliver } });
  clock.now = () => t.now.getTime();
  return { t, deliver, sent };
}

const status = (code: number, headers: Record<string, string> = {}) => new Response(null, { status: code, headers });

Deno.test("webhookJob() sends one signed body under one webhook-id until the receiver answers 2xx", async () => {
  const { t, deliver, sent } = aDelivery((n) => status(n < 3 ? 500 : 204));
  await using _engine = t;
  using _date = t.fakeDate();

  const run = await t.trigger(deliver, INPUT);
  await t.drain();

  await t.expectRun(run).completed({ status: 204 });
  assert.deepEqual(sent.map(({ id }) => id), Array(3).fill(`msg_${run.id}`));
  assert.equal(new Set(sent.map(({ body }) => body)).size, 1);
  assert.deepEqual(JSON.parse(sent[0]!.body), {
    type: "refund.paid",
    timestamp: "2030-01-01T00:00:00.000Z",
    data: { order: "o-1", cents: 1_250 },
  });
  assert.deepEqual(sent.map(({ at }) => at - sent[0]!.at), [0, 5_000, 15_000]);
  assert.deepEqual(sent.map(({ headers }) => Number(headers["webhook-timestamp"]) * 1_000), sent.map(({ at }) => at));
  assert.equal(sent[0]!.headers["content-type"], "application/json");
  assert.equal(sent[0]!.init.redirect, "manual");
});

Deno.test("webhookJob() signs with each secret of the endpoint, as the library of Standard Webhooks verifies", async () => {
  const { t, deliver, sent } = aDelivery(() => status(200), {
    endpoint: () => ({ url: URL_OF_SHOP, secret: [SECRET, NEW_SECRET] }),
  });
  await using _engine = t;

  await t.trigger(deliver, INPUT);

  for (const secret of [SECRET, NEW_SECRET]) {
    assert.deepEqual(new Webhook(secret).verify(sent[0]!.body, sent[0]!.headers), JSON.parse(sent[0]!.body));
  }
});

Deno.test("webhookJob() tries 19 times within 71 hours, and then calls onFail once", async () => {
  const failed: unknown[] = [];
  const { t, deliver, sent } = aDelivery(() => status(503), {
    onFail: (endpoint, delivery) => void failed.push([endpoint, delivery]),
  });
  await using _engine = t;

  const run = await t.trigger(deliver, INPUT);
  await t.drain();

  await t.expectRun(run).failed("The receiver answered 503");
  assert.equal(sent.length, 19);
  const hours = (sent.at(-1)!.at - sent[0]!.at) / HOUR_MS;
  assert.ok(hours > 70 && hours < 71, `${hours}`);
  assert.deepEqual(failed, [[
    "shop-7",
    { runId: run.id, type: "refund.paid", error: "The receiver answered 503" },
  ]]);
});

const AT_ONCE: Record<string, { answer?: Answer; options?: Partial<WebhookJobOptions>; error: string }> = {
  "the receiver answers 410": { answer: () => status(410), error: "The receiver answered 410: it wants no more" },
  "the name leads to a private network": {
    options: { resolve: () => Promise.resolve(["93.184.215.14", "10.0.0.7"]) },
    error: "The endpoint is in a private network",
  },
  "the address is that of this machine": {
    options: { endpoint: () => ({ url: "https://2130706433/", secret: SECRET }) },
    error: "The endpoint is in a private network",
  },
  ...Object.fromEntries(
    ["http://shop.example/", "https://ada@shop.example/", "https://:x@shop.example/", "file:///etc/passwd", "no"].map((
      url,
    ) => [`the address is ${url}`, {
      options: { endpoint: () => ({ url, secret: SECRET }) },
      error: "The address of the endpoint must be https:, and have no user name",
    }]),
  ),
  "the secret is not valid": {
    options: { endpoint: () => ({ url: URL_OF_SHOP, secret: "not base64!" }) },
    error: 'A secret of Standard Webhooks must be "whsec_" and base64',
  },
};

for (const [what, { answer = () => status(200), options = {}, error }] of Object.entries(AT_ONCE)) {
  Deno.test(`webhookJob() fails at once if ${what}`, async () => {
    const { t, deliver, sent } = aDelivery(answer, options);
    await using _engine = t;

    const run = await t.trigger(deliver, INPUT);

    await t.expectRun(run).failed(error);
    assert.equal(sent.length, (await answer(1)).status === 410 ? 1 : 0);
  });
}

Deno.test("webhookJob() looks the name up before each attempt, and fails as soon as it leads to a private network", async () => {
  const answers = [["93.184.215.14"], ["93.184.215.14", "::ffff:10.0.0.7"]];
  const { t, deliver, sent } = aDelivery(() => status(500), { resolve: () => Promise.resolve(answers.shift()!) });
  await using _engine = t;

  const run = await t.trigger(deliver, INPUT);
  await t.drain();

  await t.expectRun(run).failed("The endpoint is in a private network");
  assert.deepEqual([sent.length, answers], [1, []]);
});

for (const code of [301, 302, 307, 308, 400, 404, 429, 500]) {
  Deno.test(`webhookJob() tries again after ${code}, and follows no redirect`, async () => {
    const answer = (n: number) => n === 1 ? status(code, { location: "https://10.0.0.1/" }) : status(200);
    const { t, deliver, sent } = aDelivery(answer);
    await using _engine = t;

    const run = await t.trigger(deliver, INPUT);
    await t.drain();

    await t.expectRun(run).completed({ status: 200 });
    assert.deepEqual(sent.map(({ url }) => url), [URL_OF_SHOP, URL_OF_SHOP]);
  });
}

Deno.test("webhookJob() waits as long as Retry-After asks, but not more than 12 hours", async () => {
  const delays = [];
  for (const header of ["90", `${10 * 365 * 86_400}`, "Wed, 01 Jan 2031 00:00:00 GMT", "soon"]) {
    const { t, deliver, sent } = aDelivery((n) => n === 1 ? status(429, { "retry-after": header }) : status(200));
    await using _engine = t;
    using _date = t.fakeDate();
    await t.trigger(deliver, INPUT);
    await t.drain();
    delays.push(sent[1]!.at - sent[0]!.at);
  }

  assert.deepEqual(delays, [90_000, 12 * HOUR_MS, 12 * HOUR_MS, 5_000]);
});

Deno.test("webhookJob() keeps its own delays for a receiver that asks for shorter ones", async () => {
  for (const header of ["0", "1", "Sat, 01 Jan 2000 00:00:00 GMT"]) {
    const { t, deliver, sent } = aDelivery((n) => n < 4 ? status(503, { "retry-after": header }) : status(200));
    await using _engine = t;
    using _date = t.fakeDate();
    await t.trigger(deliver, INPUT);
    await t.drain();

    assert.deepEqual(sent.map(({ at }) => at - sent[0]!.at), [0, 5_000, 15_000, 35_000], header);
  }
});

Deno.test("webhookJob() completes as skipped if the endpoint is gone, and looks it up at each attempt", async () => {
  let lookups = 0;
  const { t, deliver, sent } = aDelivery(() => status(500), {
    endpoint: () => ++lookups < 3 ? { url: URL_OF_SHOP, secret: SECRET } : null,
  });
  await using _engine = t;

  const run = await t.trigger(deliver, INPUT);
  await t.drain();

  await t.expectRun(run).completed({ skipped: true });
  assert.deepEqual([lookups, sent.length], [3, 2]);
});

Deno.test("webhookJob() completes as skipped if there is no row of the endpoint", async () => {
  const rows: { url: string; secret: string }[] = [];
  const { t, deliver } = aDelivery(() => status(200), { endpoint: () => rows[0] as (typeof rows)[number] });
  await using _engine = t;

  const run = await t.trigger(deliver, INPUT);
  await t.drain();

  await t.expectRun(run).completed({ skipped: true });
});

Deno.test("webhookJob() gives up an attempt after 20 seconds, and reads nothing of an answer", async () => {
  const { promise: aborted, resolve } = Promise.withResolvers<void>();
  let isCancelled = false;
  const endless = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array(65_536)),
    cancel: () => void (isCancelled = true),
  });
  const { t, deliver, sent } = aDelivery((n) =>
    n > 1 ? new Response(endless) : new Promise<Response>((_, reject) => {
      const { signal } = sent[0]!.init;
      signal!.addEventListener("abort", () => {
        resolve();
        reject(signal!.reason);
      });
    })
  );
  await using _engine = t;

  const run = await t.trigger(deliver, INPUT);
  await t.drain();

  await aborted;
  await t.expectRun(run).completed({ status: 200 });
  assert.ok(isCancelled);
  assert.equal(sent[1]!.at - sent[0]!.at, 25_000);
});

Deno.test("webhookJob() stores neither the address nor a secret, however an attempt fails", async () => {
  const failures = [
    () => Promise.reject(new TypeError(`error sending request for url (${URL_OF_SHOP})`)),
    () => Promise.reject(Object.assign(new TypeError(URL_OF_SHOP), { cause: { code: "ECONNREFUSED" } })),
    () => status(500),
    () => status(410),
  ];
  const { t, deliver } = aDelivery((n) => failures[n - 1]!());
  await using _engine = t;

  const run = await t.trigger(deliver, INPUT);
  await t.drain();

  await t.expectRun(run).failed("410");
  const stored = JSON.stringify([await t.exportHistory(run), t.events, t.trace]);
  assert.match(stored, /The receiver could not be reached: ECONNREFUSED/);
  for (const secret of ["private-path", "shop.example", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]) {
    assert.ok(!stored.includes(secret), secret);
  }
});

Deno.test("webhookJob() sends the same webhook when a failed delivery is retried from the failure, and a new one from the start", async () => {
  const { t, deliver, sent } = aDelivery((n) => status(n === 1 ? 410 : 200));
  await using _engine = t;

  const run = await t.trigger(deliver, INPUT);
  const retry = await t.retrigger(run, { from: "failure" });
  const again = await t.retrigger(run, { from: "start" });

  await t.expectRun(retry).completed({ status: 200 });
  assert.deepEqual(sent.map(({ id }) => id), [`msg_${run.id}`, `msg_${run.id}`, `msg_${again.id}`]);
  assert.equal(sent[1]!.body, sent[0]!.body);
});

Deno.test("webhookJob() calls onFail once for each run that fails, also for a retry from the failure", async () => {
  const failed: string[] = [];
  const { t, deliver } = aDelivery((n) => status(n < 4 ? 410 : 200), {
    onFail: (_endpoint, { runId }) => void failed.push(runId),
  });
  await using _engine = t;

  const run = await t.trigger(deliver, INPUT);
  const second = await t.retrigger(run, { from: "failure" });
  const third = await t.retrigger(second, { from: "failure" });
  const last = await t.retrigger(third, { from: "failure" });

  await t.expectRun(third).failed("The receiver answered 410: it wants no more");
  await t.expectRun(last).completed({ status: 200 });
  assert.deepEqual(failed, [run.id, second.id, third.id]);
});

Deno.test("webhookJob() keeps deliveries with one concurrency key in order, through retries, and holds no others", async () => {
  const { t, deliver, sent } = aDelivery((n) => status(n < 3 ? 500 : 200));
  await using _engine = t;
  const order = (data: string, concurrencyKey: string) => t.trigger(deliver, { ...INPUT, data }, { concurrencyKey });

  await order("first", "shop-7/order-1");
  await order("second", "shop-7/order-1");
  await order("other", "shop-7/order-2");
  await t.drain();

  const received = sent.map(({ body }) => JSON.parse(body).data);
  assert.deepEqual(received, ["first", "other", "first", "other", "second"]);
});

Deno.test("webhookJob() sends one webhook under one id, wherever it is killed", async () => {
  const report = await crashAtEveryCheckpoint((kit) => {
    const ids = new Set<string>();
    const receiver = kit.world({ receive: (id: string) => void ids.add(id) });
    const job = webhookJob({
      name: "deliver",
      endpoint: () => ({ url: "http://localhost/hook", secret: SECRET }),
      allowPrivate: true,
      fetch: (_url, { headers }) => {
        receiver.receive((headers as Record<string, string>)["webhook-id"]!);
        return Promise.resolve(status(200));
      },
    });
    const fakes = { timestamp: { id: "msg_1", at: "2030-01-01T00:00:00.000Z" } }; // the clock of the machine goes on
    return { job, input: INPUT, fakes, observe: () => ids.size };
  });

  assert.deepEqual(report.findings, []);
  assert.ok(report.executions > 15, `${report.executions}`);
});

Deno.test("webhookJob() refuses an input that is none, and options that are none", async () => {
  const { t, deliver } = aDelivery(() => status(200));
  await using _engine = t;

  await assert.rejects(t.trigger(deliver, null as never), /must be an object, not null/);
  await assert.rejects(
    t.trigger(deliver, { endpoint: 7, type: "a", data: null } as never),
    /endpoint: must be a string/,
  );
  const endpoint = () => null;
  assert.throws(
    () => webhookJob({ name: "a", endpoint, secret: "x" } as never),
    /webhookJob\(\) has no option "secret"/,
  );
  assert.throws(() => webhookJob({ name: "a" } as never), /endpoint of webhookJob\(\) must be a function/);
  assert.throws(() => webhookJob({ name: "a", endpoint, onFail: 7 as never }), /onFail of webhookJob\(\)/);
});
