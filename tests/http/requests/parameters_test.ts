import assert from "node:assert/strict";
import { LIST_FILTER, RUN_FILTER } from "../../../src/http/requests/parameters.ts";
import { aService } from "../../support/http/http.ts";

const WRONG_BODIES: Record<string, [field: string, body: Record<string, unknown>]> = {
  "no jobName": ["jobName", { jobName: undefined }],
  "a jobName that is a number": ["jobName", { jobName: 7 }],
  "a jobName that is an object": ["jobName", { jobName: {} }],
  "a jobName that is null": ["jobName", { jobName: null }],
  "an empty jobName": ["jobName", { jobName: "" }],
  "a jobName of 10 kB": ["jobName", { jobName: "x".repeat(10_000) }],
  "a jobName with U+0000": ["jobName", { jobName: "echo\0" }],
  "an empty idempotencyKey": ["idempotencyKey", { idempotencyKey: "" }],
  "a long idempotencyKey": ["idempotencyKey", { idempotencyKey: "x".repeat(256) }],
  "an idempotencyKey that is a number": ["idempotencyKey", { idempotencyKey: 1 }],
  "an idempotencyKey that is null": ["idempotencyKey", { idempotencyKey: null }],
  "an idempotencyKey with U+0000": ["idempotencyKey", { idempotencyKey: "a\0b" }],
  "an idempotencyKey with half a letter": ["idempotencyKey", { idempotencyKey: "x\ud800" }],
  "an idempotencyKey with a line break": ["idempotencyKey", { idempotencyKey: "a\nb" }],
  "idempotencyUntil without an idempotencyKey": ["idempotencyUntil", { idempotencyUntil: "ended" }],
  "an unknown idempotencyUntil": ["idempotencyUntil", { idempotencyUntil: "sometimes", idempotencyKey: "k" }],
  "an idempotencyUntil of no time": ["idempotencyUntil", { idempotencyUntil: 0, idempotencyKey: "k" }],
  "an idempotencyUntil that is null": ["idempotencyUntil", { idempotencyUntil: null, idempotencyKey: "k" }],
  "an empty concurrencyKey": ["concurrencyKey", { concurrencyKey: "" }],
  "a long concurrencyKey": ["concurrencyKey", { concurrencyKey: "x".repeat(256) }],
  "a concurrencyKey that is an object": ["concurrencyKey", { concurrencyKey: {} }],
  "a concurrencyKey with half a letter": ["concurrencyKey", { concurrencyKey: "x\udc00" }],
  "coalesce without a concurrencyKey": ["coalesce", { coalesce: "skip" }],
  "an unknown coalesce": ["coalesce", { coalesce: "sometimes", concurrencyKey: "k" }],
  "a coalesce that is null": ["coalesce", { coalesce: null, concurrencyKey: "k" }],
  "a coalesce that is a property of every object": ["coalesce", { coalesce: "constructor", concurrencyKey: "k" }],
  "labels that are null": ["labels", { labels: null }],
  "labels that are a list": ["labels", { labels: ["a"] }],
  "labels that are a string": ["labels", { labels: "a" }],
  "a label that is a number": ["labels", { labels: { a: 1 } }],
  "a label that is null": ["labels", { labels: { a: null } }],
  "a label without a key": ["labels", { labels: { "": "a" } }],
  "a label's key with a space": ["labels", { labels: { "a b": "c" } }],
  "a label's key that is not ASCII": ["labels", { labels: { "ä": "c" } }],
  "a label's long key": ["labels", { labels: { ["k".repeat(64)]: "a" } }],
  "a label's long value": ["labels", { labels: { a: "v".repeat(256) } }],
  "a label with U+0000": ["labels", { labels: { a: "\0" } }],
  "65 labels": ["labels", { labels: Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`k${n}`, "v"])) }],
};

for (const [what, [field, fields]] of Object.entries(WRONG_BODIES)) {
  Deno.test(`POST /trigger refuses ${what}, and says where`, async () => {
    await using service = aService();

    const answer = await service.ask("POST", "/trigger", { body: { jobName: "echo", input: {}, ...fields } });

    assert.deepEqual([answer.status, answer.body.code], [400, "invalid_request"]);
    assert.deepEqual(answer.body.issues.map(({ path }: { path: string[] }) => path), [[field]]);
    assert.equal(typeof answer.body.issues[0].message, "string");
    assert.equal((await service.engine.getRuns()).total, 0);
  });
}

Deno.test("POST /trigger says which field is missing", async () => {
  await using service = aService();

  const { body } = await service.ask("POST", "/trigger", { body: { job: "echo", input: {} } });

  assert.deepEqual(body.issues, [{ path: ["jobName"], message: "is missing" }]);
});

Deno.test("a field that takes one of several types is refused with what it takes", async () => {
  await using service = aService();
  const ask = (path: string, body: Record<string, unknown>) => service.ask("POST", path, { body });

  const answers = [
    await ask("/trigger", { jobName: "echo", input: {}, idempotencyKey: "k", idempotencyUntil: "sometimes" }),
    await ask("/runs/cancel", { filter: { jobName: "" } }),
    await ask("/runs/cancel", { filter: { status: ["failed", "lost"] } }),
  ];

  const [until, jobName, status] = answers.map(({ body }) => body.issues[0].message);
  assert.match(until, /^must be "forever", "ended" or "failed", or it must be an integer from 1 to /);
  assert.match(jobName, /^must be a string of 1 to 255 characters, .*, or a list of such$/);
  assert.match(status, /^must be one of pending, leased, .*, or a list of such$/);
});

const MISSPELLED: [name: string, meant: string][] = [
  ["idempotency_key", "idempotencyKey"],
  ["idempotencykey", "idempotencyKey"],
  ["Concurrency-Key", "concurrencyKey"],
  ["InPut", "input"],
  ["job-name", "jobName"],
  ["job_name", "jobName"],
  ["COALESCE", "coalesce"],
  ["labels_", "labels"],
];

for (const [name, meant] of MISSPELLED) {
  Deno.test(`POST /trigger refuses a field "${name}", beside the right one as well`, async () => {
    await using service = aService();
    const { [meant]: _, ...others } = { jobName: "echo", input: {} } as Record<string, unknown>;

    const answers = [
      await service.ask("POST", "/trigger", { body: { jobName: "echo", input: {}, [name]: "x" } }),
      await service.ask("POST", "/trigger", { body: { ...others, [name]: "x" } }),
    ];

    for (const { status, body } of answers) {
      assert.deepEqual([status, body], [400, {
        error: `The body has a field "${name}": did you mean "${meant}"?`,
        code: "invalid_request",
      }]);
    }
    assert.equal((await service.engine.getRuns()).total, 0);
  });
}

Deno.test("POST /send refuses a misspelled field: an id that is ignored would send a message twice", async () => {
  await using service = aService();
  const sent = { jobName: "echo", key: "k", name: "text", payload: 1 };

  for (const [name, meant] of [["ID", "id"], ["job_name", "jobName"], ["Start", "start"]]) {
    const { status, body } = await service.ask("POST", "/send", { body: { ...sent, [name!]: "x" } });

    assert.deepEqual([status, body.error], [400, `The body has a field "${name}": did you mean "${meant}"?`]);
  }
});

Deno.test("POST /trigger ignores other fields that it does not know", async () => {
  await using service = aService();
  const unknown = { key: 1, name: 2, inputs: {}, label: "x", "idempotency key": "k", "": null };

  const { status } = await service.ask("POST", "/trigger", { body: { jobName: "echo", input: {}, ...unknown } });

  assert.equal(status, 200);
});

Deno.test("POST /trigger cuts the name of a misspelled field", async () => {
  await using service = aService();

  const { status, body } = await service.ask("POST", "/trigger", { body: { [`${"_".repeat(500_000)}jobName`]: 1 } });

  assert.equal(status, 400);
  assert.match(body.error, /did you mean "jobName"/);
  assert.ok(body.error.length < 200);
});

Deno.test("POST /trigger names everything that it refuses", async () => {
  await using service = aService();

  const { body } = await service.ask("POST", "/trigger", { body: { input: 1, labels: [] } });

  assert.deepEqual(body.issues.map(({ path }: { path: string[] }) => path), [["jobName"], ["labels"]]);
});

Deno.test("POST /trigger takes keys, labels and values of the greatest length", async () => {
  await using service = aService();
  const labels = Object.fromEntries(
    Array.from({ length: 64 }, (_, n) => [`${n}`.padStart(63, "k-_./Z9a"), "v".repeat(255)]),
  );
  const long = "é".repeat(255);

  const { status, body } = await service.ask("POST", "/trigger", {
    body: { jobName: "echo", input: {}, labels, idempotencyKey: long, concurrencyKey: long },
  });

  assert.equal(status, 200);
  assert.deepEqual((await service.engine.getRun(body.runId))!.labels, labels);
});

Deno.test("POST /trigger tells keys apart that only look alike", async () => {
  await using service = aService();
  const keys = ["caf\u00e9", "cafe\u0301", "Caf\u00e9", "caf\u00e9 ", " "];

  const answers = await Promise.all(
    keys.map((idempotencyKey) =>
      service.ask("POST", "/trigger", { body: { jobName: "echo", input: {}, idempotencyKey } })
    ),
  );

  assert.deepEqual(answers.map(({ body }) => body.disposition), Array(5).fill("created"));
});

Deno.test("POST /trigger takes labels that are called like the parts of an object", async () => {
  await using service = aService();
  const labels = '{"__proto__":"a","constructor":"b","toString":"","hasOwnProperty":"c"}';

  const { status, body } = await service.ask("POST", "/trigger", {
    body: `{"jobName":"echo","input":{},"labels":${labels},"__proto__":{"coalesce":"skip"}}`,
  });

  assert.equal(status, 200);
  const run = await service.ask("GET", `/run?runId=${body.runId}`);
  assert.equal(JSON.stringify(run.body.labels), labels);
  assert.equal(Object.keys(Object.prototype).length, 0);
});

Deno.test("POST /trigger finds nothing in a prototype that a body brings along", async () => {
  await using service = aService();

  const { status } = await service.ask("POST", "/trigger", { body: '{"__proto__":{"jobName":"echo","input":{}}}' });

  assert.equal(status, 400);
});

const WRONG_SIGNALS: Record<string, Record<string, unknown>> = {
  "no signalId": { payload: 1 },
  "an empty signalId": { signalId: "", payload: 1 },
  "a signalId of blanks": { signalId: " \u00a0\u2003", payload: 1 },
  "a signalId that is a number": { signalId: 1, payload: 1 },
  "a long signalId": { signalId: "x".repeat(256), payload: 1 },
  "a signalId with U+0000": { signalId: "a\0b", payload: 1 },
  "a signalId with half a letter": { signalId: "x\ud800", payload: 1 },
  "no payload": { signalId: "s" },
};

for (const [what, body] of Object.entries(WRONG_SIGNALS)) {
  Deno.test(`POST /signal refuses ${what}, and says where`, async () => {
    await using service = aService();
    const { id } = await service.engine.trigger("approval", {});
    await service.engine.runUntilIdle();
    const [wait] = await service.engine.getWaits(id);

    const answer = await service.ask("POST", `/signal?runId=${id}&waitId=${wait!.id}`, { body });

    assert.deepEqual([answer.status, answer.body.code], [400, "invalid_request"]);
    assert.deepEqual(answer.body.issues[0].path, ["payload" in body ? "signalId" : "payload"]);
    assert.equal((await service.engine.getWait(wait!.id))!.status, "pending");
  });
}

const WRONG_QUERIES = [
  ...["-1", "1.5", "1e9", "3abc", "NaN", "9007199254740992", "", "+1", " 1", "0x1", "1001", "9".repeat(400)]
    .flatMap((text) => [`limit=${encodeURIComponent(text)}`]),
  ...["-1", "1.5", "1e3", "abc", "", "1000001"].map((text) => `offset=${text}`),
  "limit=1&limit=1",
  "offset=1&offset=2",
  "status=unknown",
  "status=",
  "status=PENDING",
  "status=pending,failed",
  "status=pending&status=unknown",
  "status=__proto__",
  "jobName=",
  "jobName",
  "jobName=echo&jobName=",
  `jobName=${"x".repeat(256)}`,
  "jobName=%00",
  "label.=x",
  "label.",
  "label.a%20b=c",
  `label.${"k".repeat(64)}=v`,
  `label.k=${"v".repeat(256)}`,
  "label.k=%00",
  Array.from({ length: 65 }, (_, n) => `label.k${n}=v`).join("&"),
];

for (const query of WRONG_QUERIES) {
  Deno.test(`GET /runs refuses ?${query.slice(0, 60)}`, async () => {
    await using service = aService();

    const { status, body } = await service.ask("GET", `/runs?${query}`);

    assert.deepEqual([status, body.code], [400, "invalid_request"]);
  });
}

for (
  const query of ["limit=0", "limit=1000", "limit=007", "offset=0", "offset=1000000", "limit=1&offset=1", "label.k"]
) {
  Deno.test(`GET /runs takes ?${query}`, async () => {
    await using service = aService();

    assert.equal((await service.ask("GET", `/runs?${query}`)).status, 200);
  });
}

Deno.test("GET /runs refuses what is wrong even if no run can match", async () => {
  await using service = aService();

  const { status } = await service.ask("GET", "/runs?label.k=a&label.k=b&status=unknown");

  assert.equal(status, 400);
});

const ANY_REQUEST = new Request("http://localhost/");

Deno.test("RUN_FILTER reads every parameter, and restricts nothing without them", () => {
  const read = (query: string) => RUN_FILTER.read(new URLSearchParams(query), ANY_REQUEST).filter;

  assert.deepEqual(
    read("jobName=a&jobName=b&status=failed&label.x=1&label.y=&limit=5&offset=6"),
    { jobName: ["a", "b"], status: "failed", labels: { x: "1", y: "" }, limit: 5, offset: 6 },
  );
  assert.deepEqual(read("unknown=1"), {});
});

Deno.test("LIST_FILTER reads jobs and labels, and nothing else", () => {
  const read = (query: string) => LIST_FILTER.read(new URLSearchParams(query), ANY_REQUEST).filter;

  assert.deepEqual(read("jobName=a&jobName=b&label.x=1&limit=x&status=y"), { jobName: ["a", "b"], labels: { x: "1" } });
  assert.deepEqual(read(""), {});
  assert.deepEqual(read("label.x=1&label.x=2"), { jobName: [], labels: { x: "2" } });
});

Deno.test("GET /runs/subscribe refuses filters that GET /runs refuses", async () => {
  await using service = aService();

  const answers = await Promise.all(
    ["jobName=", "label.=x", "label.a%20b=c"].map((query) => service.ask("GET", `/runs/subscribe?${query}`)),
  );

  for (const { status, body } of answers) assert.deepEqual([status, body.code], [400, "invalid_request"]);
});

for (const query of ["from=", "from=middle", "from=Failure", "from=start&from=start", "from=constructor"]) {
  Deno.test(`POST /retrigger refuses ?${query}`, async () => {
    await using service = aService();
    const { id } = await service.engine.trigger("echo", {});
    await service.engine.runUntilIdle();

    const { status, body } = await service.ask("POST", `/retrigger?runId=${id}&${query}`);

    assert.deepEqual([status, body.code], [400, "invalid_request"]);
    assert.equal((await service.engine.getRuns()).total, 1);
  });
}

for (const query of ["", "waitId", "waitId=", "waitId=a&waitId=a"]) {
  Deno.test(`GET /wait and POST /signal refuse ?${query}`, async () => {
    await using service = aService();
    const { id } = await service.engine.trigger("approval", {});
    const body = { signalId: "s", payload: 1 };

    const answers = [
      await service.ask("GET", `/wait?runId=${id}&${query}`),
      await service.ask("POST", `/signal?runId=${id}&${query}`, { body }),
    ];

    for (const { status, body } of answers) assert.deepEqual([status, body.code], [400, "invalid_request"]);
  });
}
