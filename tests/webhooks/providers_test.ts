import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash, createHmac } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { StoreError } from "../../src/model/error.ts";
import { type Host, systemHost } from "../../src/model/host.ts";
import { githubWebhook, standardWebhook, stripeWebhook } from "../../src/webhooks/providers.ts";
import { type ReceivedWebhook, webhook } from "../../src/webhooks/webhook.ts";
import { FakeHost } from "../support/fake_host.ts";
import { Chance } from "../support/chance.ts";

const NOW_MS = Date.parse("2030-01-01T00:00:00Z");
const NOW = NOW_MS / 1_000;
const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER = `whsec_${Buffer.from("another secret of 26 bytes").toString("base64")}`;

/** A host whose clock stands still. */
function aHost(now = NOW_MS): Host {
  return { ...systemHost, now: () => now };
}

interface Outcome {
  status: number;
  body: unknown;
  received: ReceivedWebhook[];
  errors: unknown[];
}

/** Sends a request to a receiver, and says what came of it. */
async function send(
  make: (options: {
    receive: (webhook: ReceivedWebhook) => void;
    onError: (error: unknown) => void;
    host: Host;
  }) => (request: Request) => Promise<Response>,
  init: RequestInit,
  now?: number,
): Promise<Outcome> {
  const received: ReceivedWebhook[] = [];
  const errors: unknown[] = [];
  const receive = make({
    receive: (webhook) => void received.push(webhook),
    onError: (error) => void errors.push(error),
    host: aHost(now),
  });
  const response = await receive(new Request("http://localhost/hook", { method: "POST", ...init }));
  const text = await response.text();
  return { status: response.status, body: text === "" ? null : JSON.parse(text), received, errors };
}

const hmac = (key: string | Buffer, text: string, encoding: "hex" | "base64") =>
  createHmac("sha256", key).update(text).digest(encoding);

/** The headers of Standard Webhooks. */
function standardHeaders(body: string, { id = "msg_1", at = `${NOW}`, secret = SECRET } = {}): Record<string, string> {
  const key = Buffer.from(secret.replace("whsec_", ""), "base64");
  return {
    "webhook-id": id,
    "webhook-timestamp": at,
    "webhook-signature": `v1,${hmac(key, `${id}.${at}.${body}`, "base64")}`,
  };
}

const BODY = JSON.stringify({ type: "refund.paid", data: { order: "o-1" } });
const FORBIDDEN = { error: "The signature of the webhook is not valid", code: "forbidden" };

Deno.test("standardWebhook() takes what Standard Webhooks publish as their example", async () => {
  const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const headers = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  };

  const outcome = await send(
    (options) => standardWebhook({ secret, ...options }),
    { headers, body: '{"test": 2432232314}' },
    1_614_265_330_000,
  );

  assert.equal(outcome.status, 204);
  assert.deepEqual(outcome.received, [{
    id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
    type: "",
    payload: { test: 2432232314 },
    deliveryId: null,
  }]);
});

Deno.test("standardWebhook() takes a webhook that is signed with any of its secrets, by any of the signatures", async () => {
  const right = standardHeaders(BODY);
  const old = standardHeaders(BODY, { secret: OTHER })["webhook-signature"];
  const both = { ...right, "webhook-signature": `v1a,x v1,AAAA ${old} ${right["webhook-signature"]}` };

  for (const [secret, headers] of [[[OTHER, SECRET], right], [SECRET, both], [OTHER, both]] as const) {
    const { status, received } = await send((options) => standardWebhook({ secret, ...options }), {
      headers,
      body: BODY,
    });

    assert.equal(status, 204);
    assert.deepEqual(received, [{ id: "msg_1", type: "refund.paid", payload: JSON.parse(BODY), deliveryId: null }]);
  }
});

const SIGNED = standardHeaders(BODY);
const without = (name: string) => Object.fromEntries(Object.entries(SIGNED).filter(([key]) => key !== name));
const signatureOf = (headers: Record<string, string>) => headers["webhook-signature"]!;
const REFUSED: Record<string, { headers: Record<string, string>; body?: string }> = {
  "another body": { headers: SIGNED, body: `${BODY} ` },
  "another id": { headers: { ...SIGNED, "webhook-id": "msg_2" } },
  "another time": { headers: { ...SIGNED, "webhook-timestamp": `${NOW - 1}` } },
  "another secret": { headers: standardHeaders(BODY, { secret: OTHER }) },
  "no id": { headers: without("webhook-id") },
  "no time": { headers: without("webhook-timestamp") },
  "no signature": { headers: without("webhook-signature") },
  "no header": { headers: {} },
  "an old time": { headers: standardHeaders(BODY, { at: `${NOW - 301}` }) },
  "a time in the future": { headers: standardHeaders(BODY, { at: `${NOW + 301}` }) },
  "an empty time": { headers: standardHeaders(BODY, { at: "" }) },
  "a time in hexadecimal": { headers: standardHeaders(BODY, { at: `0x${NOW.toString(16)}` }) },
  "a signature of another version": {
    headers: { ...SIGNED, "webhook-signature": signatureOf(SIGNED).replace("v1,", "v2,") },
  },
  "a cut signature": { headers: { ...SIGNED, "webhook-signature": signatureOf(SIGNED).slice(0, -4) } },
  "the right signature after ten others": {
    headers: { ...SIGNED, "webhook-signature": `${"v1,AAAA ".repeat(10)}${signatureOf(SIGNED)}` },
  },
};

for (const [what, { headers, body = BODY }] of Object.entries(REFUSED)) {
  Deno.test(`standardWebhook() refuses ${what}`, async () => {
    const outcome = await send((options) => standardWebhook({ secret: SECRET, ...options }), { headers, body });

    assert.deepEqual(outcome, { status: 401, body: FORBIDDEN, received: [], errors: [] });
  });
}

Deno.test("standardWebhook() takes a time that is five minutes off", async () => {
  for (const at of [NOW - 300, NOW + 300]) {
    const headers = standardHeaders(BODY, { at: `${at}` });

    const { status } = await send((options) => standardWebhook({ secret: SECRET, ...options }), {
      headers,
      body: BODY,
    });

    assert.equal(status, 204);
  }
});

Deno.test("standardWebhook() decides as the library of Standard Webhooks does, for 1,000 bodies, keys, clocks and changes", async () => {
  const chance = new Chance(41);
  const bytes = (count: number) => Buffer.from(Array.from({ length: count }, () => chance.int(256)));
  let taken = 0;
  for (let round = 0; round < 1_000; round++) {
    const secret = `whsec_${bytes(24 + chance.int(40)).toString("base64")}`;
    const body = JSON.stringify({ type: `t${chance.int(9)}`, data: bytes(chance.int(60)).toString("latin1") });
    const offset = [-400, -299, 0, 299, 400][chance.int(5)]!;
    const library = new Webhook(secret);
    const at = new Date(Date.now() + offset * 1_000);
    const sent = {
      id: `msg_${chance.int(1_000)}`,
      timestamp: `${Math.floor(at.getTime() / 1_000)}`,
      signature: library.sign("x", at, "x"),
      body,
    };
    sent.signature = library.sign(sent.id, at, body);
    const part = (["id", "timestamp", "signature", "body", null, null] as const)[chance.int(6)]!;
    if (part !== null) {
      const position = chance.int(sent[part].length);
      const old = sent[part][position]!;
      sent[part] = sent[part].slice(0, position) + (old === "7" ? "8" : "7") + sent[part].slice(position + 1);
    }
    const headers = {
      "webhook-id": sent.id,
      "webhook-timestamp": sent.timestamp,
      "webhook-signature": sent.signature,
    };
    let expected = true;
    try {
      library.verify(sent.body, headers);
    } catch {
      expected = false;
    }

    const { status } = await send(
      (options) => standardWebhook({ secret, ...options }),
      { headers, body: sent.body },
      Date.now(),
    );

    // A body that is signed and was changed nowhere is JSON, so 400 never occurs.
    assert.equal(status === 204, expected, JSON.stringify({ round, part, offset, sent }));
    if (expected) taken++;
  }
  assert.ok(taken > 100 && taken < 500, `${taken}`);
});

const EVENT = JSON.stringify({ id: "evt_1", type: "charge.succeeded", data: { object: {} } });
const stripeSignature = (body: string, secret = "whsec_stripe", at = NOW) =>
  `t=${at},v1=${hmac(secret, `${at}.${body}`, "hex")},v0=${"0".repeat(64)}`;

Deno.test("stripeWebhook() takes what Stripe signs, with an old secret or a new one", async () => {
  const both = `${stripeSignature(EVENT, "whsec_old")},v1=${hmac("whsec_stripe", `${NOW}.${EVENT}`, "hex")}`;
  for (const header of [stripeSignature(EVENT), both, stripeSignature(EVENT, "whsec_other")]) {
    const { status, received } = await send(
      (options) => stripeWebhook({ secret: ["whsec_stripe", "whsec_other"], ...options }),
      { headers: { "stripe-signature": header }, body: EVENT },
    );

    assert.equal(status, 204);
    assert.deepEqual(received, [{
      id: "evt_1",
      type: "charge.succeeded",
      payload: JSON.parse(EVENT),
      deliveryId: null,
    }]);
  }
});

Deno.test("stripeWebhook() refuses another body, an old time, a signature of tests, and no header", async () => {
  const headers: Record<string, string>[] = [
    { "stripe-signature": stripeSignature(`${EVENT} `) },
    { "stripe-signature": stripeSignature(EVENT, "whsec_stripe", NOW - 301) },
    { "stripe-signature": stripeSignature(EVENT).replace("v1=", "v0=") },
    { "stripe-signature": stripeSignature(EVENT).replace(/^t=\d+/, "t=") },
    { "stripe-signature": "" },
    {},
  ];

  for (const sent of headers) {
    const { status } = await send((options) => stripeWebhook({ secret: "whsec_stripe", ...options }), {
      headers: sent,
      body: EVENT,
    });
    assert.equal(status, 401, JSON.stringify(sent));
  }
});

Deno.test("stripeWebhook() refuses an event without an id, and one that is not JSON", async () => {
  for (const [body, message] of [["{}", "The event has no id"], ["no", "The body is not JSON"]] as const) {
    const outcome = await send((options) => stripeWebhook({ secret: "whsec_stripe", ...options }), {
      headers: { "stripe-signature": stripeSignature(body) },
      body,
    });

    assert.deepEqual([outcome.status, outcome.body], [400, { error: message, code: "invalid_request" }]);
    assert.deepEqual([outcome.received, outcome.errors], [[], []]);
  }
});

Deno.test("githubWebhook() takes the signature that GitHub publishes as its example", async () => {
  // The body of that example is no JSON, so it is refused only after its signature.
  const headers = {
    "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
  };
  const secret = "It's a Secret to Everybody";

  const right = await send((options) => githubWebhook({ secret, ...options }), { headers, body: "Hello, World!" });
  const wrong = await send((options) => githubWebhook({ secret, ...options }), { headers, body: "Hello, World" });

  assert.deepEqual([right.status, wrong.status], [400, 401]);
});

Deno.test("githubWebhook() has the same id for a body that is delivered again, also under another header and secret", async () => {
  const body = JSON.stringify({ action: "opened" });
  const deliver = async (deliveryId: string, secret: string) => {
    const headers = {
      "x-hub-signature-256": `sha256=${hmac(secret, body, "hex")}`,
      "x-github-delivery": deliveryId,
      "x-github-event": "issues",
    };
    const { received } = await send((options) => githubWebhook({ secret: ["new", "old"], ...options }), {
      headers,
      body,
    });
    return received[0]!;
  };

  const first = await deliver("d-1", "old");
  const again = await deliver("d-2", "new");

  assert.deepEqual(first, {
    id: createHash("sha256").update(body).digest("hex"),
    type: "issues",
    payload: { action: "opened" },
    deliveryId: "d-1",
  });
  assert.deepEqual(again, { ...first, deliveryId: "d-2" });
});

Deno.test("githubWebhook() refuses signatures that are no SHA-256", async () => {
  for (const value of ["", "sha1=00", "sha256=", `sha256=${"0".repeat(63)}`, `sha256=${"g".repeat(64)}`]) {
    const { status } = await send((options) => githubWebhook({ secret: "s", ...options }), {
      headers: { "x-hub-signature-256": value },
      body: "{}",
    });
    assert.equal(status, 401, value);
  }
});

const accept = { verify: () => ({ id: "1", type: "t" }) };

Deno.test("webhook() takes what verify() accepts, and the payload that it has read", async () => {
  const own = await send((options) => webhook({ ...accept, ...options }), { body: '{"a":1}' });
  const read = await send(
    (options) => webhook({ verify: () => ({ id: "1", type: "t", payload: { b: 2 } }), ...options }),
    { body: "b=2" },
  );

  assert.deepEqual(own.received, [{ id: "1", type: "t", payload: { a: 1 }, deliveryId: null }]);
  assert.deepEqual(read.received[0]?.payload, { b: 2 });
});

Deno.test("webhook() answers 413, 400 and 405, and receives nothing", async () => {
  const large = await send((options) => webhook({ ...accept, ...options }), { body: " ".repeat(1_048_577) });
  const deep = await send((options) => webhook({ ...accept, ...options }), { body: "[".repeat(65) + "]".repeat(65) });
  const binary = await send((options) => webhook({ ...accept, ...options }), { body: new Uint8Array([255, 254]) });
  const get = await send((options) => webhook({ ...accept, ...options }), { method: "GET" });

  assert.deepEqual([large, deep, binary, get].map(({ status }) => status), [413, 400, 400, 405]);
  assert.deepEqual([large, deep, binary, get].flatMap(({ received, errors }) => [...received, ...errors]), []);
});

Deno.test("webhook() answers 408 if the body takes more than ten seconds", async () => {
  const host = new FakeHost();
  const { promise: pulled, resolve } = Promise.withResolvers<void>();
  const receive = webhook({ ...accept, receive: () => {}, host });
  const body = new ReadableStream({
    pull() {
      resolve();
      return new Promise<void>(() => {});
    },
  });

  const answering = receive(new Request("http://localhost/hook", { method: "POST", body }));
  await pulled;
  host.advance(10_000);

  assert.equal((await answering).status, 408);
});

Deno.test("webhook() answers 500 when receive() throws, and 503 when the store does not answer", async () => {
  const failures = [new Error("no"), new Response(null, { status: 204 }), new StoreError("busy")];
  const answers = [];
  for (const failure of failures) {
    const errors: unknown[] = [];
    const receive = webhook({
      ...accept,
      receive: () => Promise.reject(failure),
      onError: (error) => errors.push(error),
    });
    const response = await receive(new Request("http://localhost/hook", { method: "POST", body: "{}" }));
    answers.push([response.status, response.headers.get("retry-after"), errors[0] === failure]);
    await response.body?.cancel();
  }

  assert.deepEqual(answers, [[500, null, true], [500, null, true], [503, "1", true]]);
});

Deno.test("webhook() hides what verify() throws", async () => {
  const failure = new Error("a secret");

  const outcome = await send(
    (options) => webhook({ verify: () => Promise.reject(failure), ...options }),
    { body: "{}" },
  );

  assert.deepEqual(outcome, {
    status: 500,
    body: { error: "Internal error", code: "internal" },
    received: [],
    errors: [failure],
  });
});

Deno.test("webhook() refuses a request whose body was read", async () => {
  const request = new Request("http://localhost/hook", { method: "POST", body: "{}" });
  await request.json();

  await assert.rejects(
    webhook({ ...accept, receive: () => {} })(request),
    new TypeError("verify the webhook before anything reads its body"),
  );
});

Deno.test("the receivers refuse secrets that cannot be right, without showing them", () => {
  const receive = () => {};
  const message = (subject: string) =>
    new TypeError(`The secret of ${subject} must be a string, or 1 to 10 strings, none of them empty`);

  for (const secret of ["", [], ["a", ""], Array(11).fill("a"), undefined, 7]) {
    const options = { secret: secret as string, receive };
    assert.throws(() => standardWebhook(options), message("standardWebhook()"));
    assert.throws(() => stripeWebhook(options), message("stripeWebhook()"));
    assert.throws(() => githubWebhook(options), message("githubWebhook()"));
  }
  assert.throws(
    () => standardWebhook({ secret: "whsec_not base64", receive }),
    new TypeError('A secret of Standard Webhooks must be "whsec_" and base64'),
  );
  assert.throws(
    () => stripeWebhook({ secret: "a", receive, tolerance: 1 } as never),
    /stripeWebhook\(\) has no option "tolerance"/,
  );
});

Deno.test("10,000 random bodies and headers never lead to a 5xx", async () => {
  const chance = new Chance(4_141);
  const text = (length: number) =>
    String.fromCharCode(...Array.from({ length: chance.int(length) }, () => 33 + chance.int(94)));
  const errors: unknown[] = [];
  const options = { receive: () => {}, onError: (error: unknown) => void errors.push(error), host: aHost() };
  const receivers = [
    standardWebhook({ secret: SECRET, ...options }),
    stripeWebhook({ secret: "s", ...options }),
    githubWebhook({ secret: "s", ...options }),
    webhook({ ...accept, ...options }),
  ];
  const statuses = new Set<number>();
  for (let round = 0; round < 10_000; round++) {
    const body = [text(40), `{"id":${JSON.stringify(text(9))}`, "[1e999]", "{}", '{"__proto__":1}'][chance.int(5)]!;
    const isSigned = chance.int(2) === 0;
    const headers: Record<string, string> = isSigned
      ? {
        ...standardHeaders(body),
        "stripe-signature": stripeSignature(body, "s"),
        "x-hub-signature-256": `sha256=${hmac("s", body, "hex")}`,
      }
      : {
        "webhook-id": text(9),
        "webhook-timestamp": [text(9), `${NOW}`][chance.int(2)]!,
        "webhook-signature": `v1,${text(50)}`,
        "stripe-signature": `t=${[text(9), NOW][chance.int(2)]},v1=${text(70)}`,
        "x-hub-signature-256": `sha256=${text(70)}`,
      };
    const receive = receivers[round % receivers.length]!;
    const response = await receive(new Request("http://localhost/hook", { method: "POST", headers, body }));
    statuses.add(response.status);
    await response.body?.cancel();
  }

  assert.deepEqual([...statuses].sort(), [204, 400, 401]);
  assert.deepEqual(errors, []);
});

Deno.test("signatures are compared by timingSafeEqual() alone", async () => {
  const source = await Deno.readTextFile(new URL("../../src/webhooks/providers.ts", import.meta.url));

  assert.match(source, /timingSafeEqual\(mac, right\)/);
  assert.doesNotMatch(source, /(?:mac|right|digest\([^)]*\)) [!=]==? |[!=]==? (?:mac|right)\b(?!\.)/);
});
