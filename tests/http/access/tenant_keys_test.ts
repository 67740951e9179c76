import assert from "node:assert/strict";
import type { HandlerAuth, RequestedTrigger } from "../../../src/http/access/auth_hooks.ts";
import { aClaimRequest } from "../../support/fixtures.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { type Answer, aService, type Service } from "../../support/http/http.ts";

/** Hooks of a host that names its tenants, and lets each do everything with what it finds. */
function naming(more: Partial<HandlerAuth<string>> = {}): HandlerAuth<string> {
  return {
    authenticate: (request) => decodeURIComponent(request.headers.get("x-org")!),
    tenant: (org) => org,
    onTrigger: () => {},
    onRunAccess: () => {},
    scopeRuns: (_org, filter) => filter,
    ...more,
  };
}

/** Triggers a run as a tenant. */
function triggerAs(service: Service, org: string, options: Record<string, unknown>): Promise<Answer> {
  const body = { jobName: "approval", input: {}, ...options };
  return service.ask("POST", "/trigger", { headers: { "x-org": encodeURIComponent(org) }, body });
}

forEachStore("one idempotencyKey of two tenants makes two runs, and one of each", async (context) => {
  await using service = aService({ auth: naming() }, context);

  const answers = [];
  for (const org of ["a", "b", "a", "b"]) answers.push(await triggerAs(service, org, { idempotencyKey: "once" }));

  assert.deepEqual(answers.map(({ body }) => body.disposition), ["created", "created", "idempotent", "idempotent"]);
  assert.deepEqual(answers.slice(2).map(({ body }) => body.runId), answers.slice(0, 2).map(({ body }) => body.runId));
  assert.notEqual(answers[0]!.body.runId, answers[1]!.body.runId);
});

for (const coalesce of ["skip", "queue", "active"]) {
  forEachStore(`coalesce "${coalesce}" joins no run of another tenant`, async (context) => {
    await using service = aService({ auth: naming() }, context);

    const answers = [];
    for (const org of ["a", "b", "a"]) {
      answers.push(await triggerAs(service, org, { concurrencyKey: "line", coalesce }));
    }

    assert.deepEqual(answers.map(({ body }) => body.disposition), ["created", "created", "coalesced"]);
  });
}

forEachStore("one concurrencyKey of two tenants lets their runs execute at once", async (context) => {
  await using service = aService({ auth: naming() }, context);
  const runs = [];
  for (const org of ["a", "a", "b"]) runs.push((await triggerAs(service, org, { concurrencyKey: "line" })).body.runId);

  const { claims } = await context.store.claim(aClaimRequest({ jobNames: ["approval"], limit: 3 }));

  assert.deepEqual(claims.map(({ run }) => run.id), [runs[0], runs[2]]);
});

forEachStore("no tenant has a name and a key that together are those of another", async (context) => {
  await using service = aService({ auth: naming() }, context);
  const pairs: [org: string, key: string][] = [
    ["a", "b/c"],
    ["a/b", "c"],
    ["a%2Fb", "c"],
    ["a%252Fb", "c"],
    ["a", "%2Fb/c"],
    ["a/", "b/c"],
    ["a", "/b/c"],
    ["A", "b/c"],
    ["\u{1F4A9}", "\u{1F4A9}"],
    ["caf\u00e9", "k"],
    ["cafe\u0301", "k"],
    ["%", "k"],
    ["%25", "k"],
  ];

  for (const expected of ["created", "idempotent"]) {
    for (const [org, key] of pairs) {
      const { body } = await triggerAs(service, org, { idempotencyKey: key });
      assert.equal(body.disposition, expected, `${org} and ${key}`);
    }
  }
});

forEachStore(
  "names and keys of tenants may both have the greatest length, and a run is retriggered",
  async (context) => {
    await using service = aService({ auth: naming() }, context);
    const [org, key] = ["/".repeat(255), "é".repeat(255)];
    const keys = { idempotencyKey: key, concurrencyKey: key };
    const headers = { "x-org": encodeURIComponent(org) };

    const { status, body: { runId } } = await triggerAs(service, org, { jobName: "fail", ...keys });
    await service.engine.runUntilIdle();
    const again = [];
    for (const from of ["start", "failure"]) {
      const answer = await service.ask("POST", `/retrigger?runId=${runId}&from=${from}`, { headers });
      again.push(answer);
      await service.engine.runUntilIdle();
    }
    const tooLong = await triggerAs(service, org, { idempotencyKey: `${key}x` });
    const runs = await Promise.all(
      [runId, ...again.map(({ body }) => body.runId)].map((id) => service.engine.getRun(id)),
    );

    assert.equal(status, 200);
    assert.deepEqual(again.map(({ status }) => status), [200, 200]);
    const stored = `${"%2F".repeat(255)}/${key}`;
    assert.deepEqual(runs.map((run) => run!.concurrencyKey), [stored, stored, stored]);
    assert.deepEqual(runs.map((run) => run!.idempotencyKey), [stored, null, null]);
    assert.deepEqual([tooLong.status, tooLong.body.code], [400, "invalid_request"]);
  },
);

forEachStore("hooks see keys as they were given, and nobody learns what is stored", async (context) => {
  const seen: RequestedTrigger[] = [];
  await using service = aService({
    auth: naming({ onTrigger: (_org, trigger) => void seen.push(trigger) }),
  }, context);

  const { body } = await triggerAs(service, "acme", { idempotencyKey: "once", concurrencyKey: "line" });
  const shown = await service.ask("GET", `/run?runId=${body.runId}`, { headers: { "x-org": "acme" } });
  const { idempotencyKey, concurrencyKey } = (await service.engine.getRun(body.runId))!;

  assert.deepEqual(seen.map((trigger) => [trigger.idempotencyKey, trigger.concurrencyKey]), [["once", "line"]]);
  assert.doesNotMatch(JSON.stringify([body, shown.body]), /once|line|acme/);
  assert.deepEqual([idempotencyKey, concurrencyKey], ["acme/once", "acme/line"]);
});

forEachStore("GET /explain shows a key as its tenant gave it", async (context) => {
  await using service = aService({ auth: naming() }, context);
  await triggerAs(service, "a/b", { concurrencyKey: "disk" });
  await context.store.claim(aClaimRequest({ jobNames: ["approval"] }));
  const { body: { runId } } = await triggerAs(service, "a/b", { concurrencyKey: "disk" });

  const answers = [];
  for (const org of ["a/b", "c"]) {
    answers.push(
      await service.ask("GET", `/explain?runId=${runId}`, { headers: { "x-org": encodeURIComponent(org) } }),
    );
  }

  const keys = answers.map(({ body }) =>
    body.reasons.find(({ kind }: { kind: string }) => kind === "key").concurrencyKey
  );
  assert.deepEqual(keys, ["disk", "a%2Fb/disk"]);
  assert.match(answers[0]!.body.message, /for the key disk;/);
});

forEachStore("joining a run of the own tenant asks onRunAccess still", async (context) => {
  await using service = aService({
    auth: naming({
      onRunAccess: () => {
        throw new Response(null, { status: 404 });
      },
    }),
  }, context);
  await triggerAs(service, "a", { idempotencyKey: "once" });

  const joined = await triggerAs(service, "a", { idempotencyKey: "once" });
  const other = await triggerAs(service, "b", { idempotencyKey: "once" });

  assert.deepEqual([joined.status, joined.body], [409, { error: "The key is in use", code: "key_in_use" }]);
  assert.equal(other.body.disposition, "created");
});

forEachStore("a Response that tenant() throws is the answer, and nothing is stored", async (context) => {
  const refusal = () => new Response("no tenant", { status: 402 });
  await using service = aService({ auth: naming({ tenant: () => Promise.reject(refusal()) }) }, context);
  const headers = { "x-org": "a" };
  const body = { jobName: "echo", input: {} };

  const { trigger, runsSubscribe } = service.handler;
  const responses = [
    await trigger(new Request("http://localhost/", { method: "POST", headers, body: JSON.stringify(body) })),
    await runsSubscribe(new Request("http://localhost/", { headers })),
  ];

  for (const response of responses) assert.deepEqual([response.status, await response.text()], [402, "no tenant"]);
  assert.equal((await service.engine.getRuns()).total, 0);
  assert.equal(context.host.timerCount, 0);
});

forEachStore("without tenant() keys are those of everybody, as in process", async (context) => {
  await using service = aService({ auth: naming({ tenant: undefined }) }, context);

  const first = await triggerAs(service, "a", { idempotencyKey: "once" });
  const second = await triggerAs(service, "b", { idempotencyKey: "once" });
  const inProcess = await service.engine.trigger("approval", {}, { idempotencyKey: "once" });

  assert.deepEqual([second.body.runId, inProcess.id], [first.body.runId, first.body.runId]);
});
