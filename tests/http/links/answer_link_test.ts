import assert from "node:assert/strict";
import { z } from "zod";
import { aLinkedService, LINK_KEY, type LinkedService } from "../../support/http/linked_service.ts";
import { createHandler } from "../../../src/http/handler.ts";
import { signedLinks } from "../../../src/links/signed_links.ts";
import type { Wait } from "../../../src/model/wait.ts";
import { StoreError } from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { Chance } from "../../support/chance.ts";
import { allRoutes } from "../../support/http/hostile.ts";
import { aRequest, aService } from "../../support/http/http.ts";
import { anything, forEachStore } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const NOT_VALID = "This link is not valid";
const EXPIRED = "This link has expired";
const CLOSED = "This question is closed";
const THANKS = "Thank you";

/** The wait of a run. */
async function waitOf({ engine }: LinkedService, id: string) {
  return (await engine.getWaits(id)).find(({ name }) => name === "approve")!;
}

forEachStore("GET and HEAD show the question and change nothing, however often", async (world) => {
  await using service = aLinkedService(world);
  const { id, path } = await service.ask1("ask");

  for (let n = 0; n < 6; n++) {
    const page = await service.open(path);
    const head = await service.open(path, "HEAD");
    assert.deepEqual([page.status, page.heading, head.status, head.html], [200, "Refund?", 200, ""]);
    assert.match(page.html, /<dt>amount<\/dt><dd>12<\/dd>/);
    assert.match(page.html, /<button name="action" value="Refund" class="main">Refund<\/button>/);
  }

  assert.equal((await waitOf(service, id)).status, "pending");
});

forEachStore("what scans mails and prefetches pages changes nothing", async (world) => {
  await using service = aLinkedService(world);
  const { id, path } = await service.ask1("ask");
  const scanners: [method: string, headers: Record<string, string>][] = [
    ["GET", { "user-agent": "Mozilla/5.0 (Windows NT 10.0; Win64; x64) SafeLinks" }],
    ["GET", { "sec-purpose": "prefetch;prerender", "sec-fetch-site": "none" }],
    ["GET", { "purpose": "prefetch", "x-moz": "prefetch" }],
    ["GET", { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" }],
    ["GET", { "user-agent": "Slackbot-LinkExpanding 1.0", "range": "bytes=0-32768" }],
    ["HEAD", { "user-agent": "curl/8.5.0" }],
  ];

  for (const [method, headers] of scanners) {
    const { status } = await service.open(path, method, headers);
    assert.equal(status, 200, JSON.stringify(headers));
  }
  const { status } = await service.open(path, "OPTIONS", { "access-control-request-method": "POST" });

  assert.ok([204, 405].includes(status), String(status));
  assert.equal((await waitOf(service, id)).status, "pending");
  assert.equal((await service.post(path, { action: "Refund" })).status, 303);
});

forEachStore("the token of a link opens no other route", async (world) => {
  const unknown = () => Response.json({ error: "Who are you?", code: "unauthorized" }, { status: 401 });
  const auth = { authenticate: () => Promise.reject(unknown()) };
  await using service = aLinkedService(world, { auth });
  const { id, path } = await service.ask1("ask");
  const { id: waitId } = await waitOf(service, id);
  const token = path.split("?t=")[1]!;
  const isOpen = (path: string) => path.startsWith("/health") || path === "/openapi.json";

  for (const [name, { method, path }] of allRoutes) {
    if (isOpen(path)) continue;
    const headers = { authorization: `Bearer ${token}`, cookie: `t=${token}` };
    const { status } = await service.handler.fetch(
      aRequest(method, `${path}?runId=${id}&waitId=${waitId}&t=${token}`, { headers }),
    );
    assert.equal(status, 401, name);
  }
  assert.equal((await service.open(path)).status, 200);
});

forEachStore("POST answers, once, as the one for whom the link was made", async (world) => {
  await using service = aLinkedService(world);
  const { id, path } = await service.ask1("ask");

  const answered = await service.post(path, { action: "Refund" });
  const again = await service.post(path, { action: "Refuse" });
  await service.engine.runUntilIdle();

  const { payload, signalledBy, signalId } = await waitOf(service, id);
  const token = new URLSearchParams(path.split("?")[1]).get("t")!;
  assert.deepEqual([answered.status, answered.headers.get("location")], [303, `?t=${token}`]);
  assert.deepEqual([again.status, again.heading], [200, THANKS]);
  assert.deepEqual([payload, signalledBy, signalId], [
    { ok: true },
    "ada@example.com",
    `link/${token.split(".")[2]!.slice(0, 22)}`,
  ]);
  assert.deepEqual((await service.engine.getRun(id))!.output, { outcome: "signal", payload: { ok: true }, signalId });
  assert.deepEqual([(await service.open(path)).status, (await service.open(path)).heading], [200, THANKS]);
});

forEachStore("each request for each state of a link gets its page", async (world) => {
  await using service = aLinkedService(world);
  const { engine, links, host } = service;
  const other = signedLinks({ keys: ["a key that this handler does not have"], url: "http://localhost" });
  const states: [state: string, path: string, status: number, heading: string][] = [];
  const asked = await service.ask1("ask");
  states.push(["valid", asked.path, 200, "Refund?"]);
  const forged = await other.toWait(await waitOf(service, asked.id));
  states.push(["forged", forged.replace("http://localhost", ""), 404, NOT_VALID]);
  states.push(["cut", asked.path.slice(0, -1), 404, NOT_VALID], ["none", "/link", 404, NOT_VALID]);
  states.push(["twice", `${asked.path}&t=x`, 404, NOT_VALID]);
  const soon = await links.toWait(await waitOf(service, asked.id), { expiresAt: new Date(host.now() + 1_000) });
  const mine = await service.ask1("ask");
  await service.post(mine.path, { action: "Refund" });
  states.push(["answered by this link", mine.path, 200, THANKS]);
  const taken = await service.ask1("ask");
  await engine.signal((await waitOf(service, taken.id)).id, { signalId: "by hand", payload: 1 });
  states.push(["answered by another", taken.path, 410, CLOSED]);
  const ended = await service.ask1("ask");
  await engine.cancel(ended.id);
  states.push(["of a run that has ended", ended.path, 410, CLOSED]);
  const deleted = await service.ask1("ask");
  await engine.cancel(deleted.id);
  await engine.deleteRun(deleted.id);
  states.push(["of a run that was deleted", deleted.path, 410, CLOSED]);
  host.advance(2_000);
  states.push(["expired", soon.replace("http://localhost", ""), 410, EXPIRED]);
  const before = JSON.stringify([await engine.getRuns(), await engine.getWaits(asked.id)]);

  for (const [state, path, status, heading] of states) {
    const get = await service.open(path);
    const head = await service.open(path, "HEAD");
    const put = await service.open(path, "PUT");
    assert.deepEqual(
      [get.status, get.heading, head.status, head.html, put.status],
      [status, heading, status, "", 405],
      state,
    );
    assert.equal(put.headers.get("allow"), "GET, HEAD, POST");
    if (state === "valid") continue;
    const post = await service.post(path, { action: "Refund" });
    assert.deepEqual([post.status, post.heading], [status, heading], state);
  }
  assert.equal(JSON.stringify([await engine.getRuns(), await engine.getWaits(asked.id)]), before);
});

forEachStore("a link expires with the deadline of its wait", async (world) => {
  await using service = aLinkedService(world);
  const { path } = await service.ask1("ask");

  service.host.advance(60_000);

  const [get, post] = [await service.open(path), await service.post(path, { action: "Refund" })];
  assert.deepEqual([get.status, get.heading, post.status, post.heading], [410, EXPIRED, 410, EXPIRED]);
});

forEachStore("every page has the headers that keep it to itself", async (world) => {
  await using service = aLinkedService(world);
  const { path } = await service.ask1("ask");
  const answers = [
    await service.open(path),
    await service.open("/link?t=x"),
    await service.post(path, {}),
    await service.post(path, { action: "Refund" }),
  ];

  assert.deepEqual(answers.map(({ status }) => status), [200, 404, 422, 303]);
  for (const { headers } of answers) {
    assert.match(
      headers.get("content-security-policy")!,
      /^default-src 'none'; style-src 'sha256-[\w+/]{43}='; form-action 'self'; base-uri 'none'; frame-ancestors 'none'$/,
    );
    assert.deepEqual(
      ["cache-control", "referrer-policy", "x-robots-tag", "x-content-type-options", "cross-origin-resource-policy"]
        .map((name) => headers.get(name)),
      ["no-store", "same-origin", "noindex", "nosniff", "same-origin"],
    );
  }
});

forEachStore("a form is answered by its fields, and a wrong one is said at the field", async (world) => {
  await using service = aLinkedService(world);
  const { id, path } = await service.ask1("form");
  const asked = await service.open(path);
  assert.match(asked.html, /<legend>approved<\/legend>/);
  assert.ok(!asked.html.includes("checkbox"));

  const empty = await service.post(path, {});
  const wrong = await service.post(path, { f0: "true", f1: "12.5", f2: '"late"', f3: "<b>kept</b>" });
  const refused = await service.post(path, { f0: "true", f1: "20000", f3: "x".repeat(21) });
  const unsaid = await service.post(path, { f0: "false", f1: "1" });
  const right = await service.post(path, { f0: "false", f1: " 1200 ", f2: '"late"', f3: "a\r\nb" });

  assert.deepEqual([empty.status, wrong.status, refused.status, right.status], [422, 422, 422, 303]);
  assert.match(unsaid.html, /id="f2-bad" role="alert">is needed to refuse</, "a refinement that no JSON Schema says");
  assert.match(empty.html, /id="f0-bad" role="alert">Please choose</);
  assert.match(empty.html, /id="f1-bad" role="alert">Please fill this in</);
  assert.match(wrong.html, /id="f1-bad" role="alert">Please enter a whole number</);
  assert.match(wrong.html, /value="true" name="f0"[^>]* checked>/);
  assert.match(wrong.html, /<option value="&quot;late&quot;" selected>/);
  assert.match(wrong.html, /&lt;b&gt;kept&lt;\/b&gt;<\/textarea>/);
  assert.match(refused.html, /id="f1-bad"/);
  assert.deepEqual((await waitOf(service, id)).payload, { approved: false, cents: 1200, reason: "late", note: "a\nb" });
});

forEachStore("what was entered is what is recorded, or it is refused at its field", async (world) => {
  const links = signedLinks({ keys: [LINK_KEY], url: "http://localhost" });
  const schema = z.object({
    account: z.number(),
    reason: z.enum(["damaged", "late"]).default("late"),
    note: z.string().default("none"),
  });
  let path = "";
  const job = defineJob({
    name: "ask",
    input: z.null(),
    waits: { approve: schema },
    async run(step) {
      const wait = await step.prepareWait("approve", { timeout: 60_000 });
      path = (await links.toWait(wait)).replace("http://localhost", "");
      await step.waitFor(wait);
    },
  });
  await using service = aService({ links }, world, { job });
  const { id } = await service.engine.trigger("ask", null);
  await service.engine.runUntilIdle();
  const post = async (f0: string, f1: string, f2: string) => {
    const body = new URLSearchParams({ f0, f1, f2 });
    const response = await service.handler.fetch(aRequest("POST", path, { body }));
    const issues = [...(await response.text()).matchAll(/id="(f\d)-bad" role="alert">(.*?)</g)];
    return [response.status, ...issues.map(([, field, issue]) => `${field}: ${issue}`)];
  };
  const page = await (await service.handler.fetch(aRequest("GET", path))).text();

  const rounded = await Promise.all(
    ["9007199254740993", "0.10000000000000000001", "1e-400"].map((number) => post(number, '"late"', "none")),
  );
  const others = await Promise.all(
    ["0x1F", "0b11", "1_000", "1,5", "Infinity", ".", "e5"].map((text) => post(text, '"late"', "none")),
  );
  const startedAt = performance.now();
  const long = await Promise.all(
    [`${"1".repeat(60_000)}x`, `1${"0".repeat(60_000)}1`].map((text) => post(text, '"late"', "none")),
  );
  const longMs = performance.now() - startedAt;
  const leftOut = await post("1", "", "");
  const right = await post(" 0012.50e1 ", '"damaged"', "none");

  assert.match(page, /<select id="f1" name="f1" required><option value="&quot;damaged&quot;">/);
  assert.ok(!page.includes('<option value="">') && !page.includes("(optional)"));
  for (const answer of rounded) assert.deepEqual(answer, [422, "f0: Please enter a number with fewer digits"]);
  for (const answer of others) assert.deepEqual(answer, [422, "f0: Please enter a number"]);
  assert.deepEqual(long.map(([status]) => status), [422, 422]);
  assert.ok(longMs < 1_000, `long numbers took ${longMs} ms`); // some seconds, if the time grew with the square
  assert.deepEqual(leftOut, [422, "f1: Please choose", "f2: Please fill this in"]);
  assert.deepEqual(right, [303]);
  assert.deepEqual((await service.engine.getWaits(id))[0]!.payload, { account: 125, reason: "damaged", note: "none" });
});

forEachStore("a link to certain actions offers no other answer", async (world) => {
  await using service = aLinkedService(world, {}, { actions: ["Refuse"] });
  const { id, path } = await service.ask1("ask");

  const { html } = await service.open(path);
  const other = await service.post(path, { action: "Refund" });
  const offered = await service.post(path, { action: "Refuse" });

  assert.ok(!html.includes('value="Refund"') && html.includes('value="Refuse"'));
  assert.deepEqual([other.status, offered.status], [422, 303]);
  assert.deepEqual((await waitOf(service, id)).payload, { ok: false });
});

forEachStore("a button whose label has line breaks can be chosen", async (world) => {
  await using service = aLinkedService(world);
  const actions = [{ label: "Yes", payload: 1 }, { label: "Refund\nall of it", payload: 2 }];
  const { id, path } = await service.ask1("ask", { metadata: { actions } });

  const { status } = await service.post(path, { action: "Refund\r\nall of it" }); // as forms send it

  assert.equal(status, 303);
  assert.equal((await waitOf(service, id)).payload, 2);
});

forEachStore("a link follows the retries of its run", async (world) => {
  let broken = true;
  await using service = aLinkedService(world, {}, {}, async (step, answer) => {
    await step.run("refund", () => {
      if (broken) throw new Error("the bank is closed");
    });
    return answer;
  });
  const { engine, links, sent } = service;
  const { id, path } = await service.ask1("ask");
  await engine.cancel(id); // with its question open

  const closed = await service.open(path);
  const retry = await engine.retrigger(id, { from: "failure" });
  const between = await service.open(path);
  await engine.runUntilIdle();
  await engine.cancel(retry.id);
  const second = await engine.retrigger(retry.id, { from: "failure" });
  await engine.runUntilIdle();
  const open = await service.open(path);
  const answered = await service.post(path, { action: "Refund" });
  await engine.runUntilIdle();
  broken = false;

  assert.equal(sent.length, 1, "the mail was not sent again");
  assert.deepEqual([closed.status, between.status, open.status, answered.status], [410, 503, 200, 303]);
  assert.equal((await waitOf(service, second.id)).signalledBy, "ada@example.com");
  assert.deepEqual((await service.open(path)).heading, THANKS);
  // The run has failed after the answer: a retry keeps it, or asks once more.
  const third = await engine.retrigger(second.id, { from: "failure" });
  await engine.runUntilIdle();
  if ((await engine.getRun(third.id))!.status === "waiting") await service.post(path, { action: "Refund" });
  await engine.runUntilIdle();
  assert.equal((await engine.getRun(third.id))!.status, "completed");
  const token = new URLSearchParams(path.split("?")[1]).get("t")!;
  assert.equal((await links.open(token, engine))?.wait.runId, third.id);
});

forEachStore(
  "a link answers the open retry of a run, whatever retention and deletions have left of the chain",
  async (world) => {
    await using service = aLinkedService(world);
    const { engine } = service;
    const { id, path } = await service.ask1("ask");
    const mailed = await waitOf(service, id);
    const retry = async (runId: string) => {
      await engine.cancel(runId); // with its question open
      const { id } = await engine.retrigger(runId, { from: "failure" });
      await engine.runUntilIdle();
      return id;
    };

    const second = await retry(id);
    const purged = await engine.purgeRuns({ olderThan: 0 });
    const kept = await service.open(path);
    const third = await retry(second);
    await engine.deleteRun(second);
    const passed = await service.open(path);
    const again = await engine.purgeRuns({ olderThan: 0 });
    const { wait, disposition } = await engine.signal(mailed.id, { signalId: "s", payload: { ok: true } });
    await engine.runUntilIdle();
    const { deleted } = await engine.purgeRuns({ olderThan: 0 });

    assert.deepEqual([purged.deleted, kept.status, passed.status, again.deleted], [0, 200, 200, 0]);
    assert.deepEqual([wait.runId, disposition], [third, "accepted"]);
    assert.equal(deleted, 2);
    assert.equal((await service.open(path)).heading, CLOSED);
  },
);

forEachStore("a link is closed when somebody deletes its run, also if a retry is open", async (world) => {
  await using service = aLinkedService(world);
  const { engine } = service;
  const { id, path } = await service.ask1("ask");
  await engine.cancel(id);
  await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  await engine.deleteRun(id);

  const { status, heading } = await service.open(path);
  assert.deepEqual([status, heading], [410, CLOSED]);
});

forEachStore("a link and an old id follow a wait that the code of the retry has renamed", async ({ store, host }) => {
  const links = signedLinks({ keys: [LINK_KEY], url: "http://localhost" });
  const sent: string[] = [];
  const asking = (names: string[], renamed = {}) =>
    defineJob({
      name: "ask",
      input: anything,
      changes: { renamed },
      async run(step) {
        const waits: Wait[] = [];
        for (const name of names) {
          waits.push(
            await step.prepareWait(name, { timeout: 60_000, metadata: { actions: [{ label: "Yes", payload: 1 }] } }),
          );
        }
        await step.run("send", async () => {
          for (const wait of waits) sent.push((await links.toWait(wait)).replace("http://localhost", ""));
        });
        return (await Promise.all(waits.map((wait) => step.waitFor(wait)))).length;
      },
    });
  const before = createEngine({ store, host, jobs: { ask: asking(["approve", "approve", "sign"]) } });
  const { id } = await before.jobs.ask.trigger(null);
  await before.runUntilIdle();
  const [, , signed] = await before.getWaits(id);
  await before.cancel(id);
  await before.stop();
  // One was renamed twice.
  const renamed = { approve: "approval", sign: "signature", signature: "initials" };
  await using engine = createEngine({
    store,
    host,
    jobs: { ask: asking(["approval", "approval", "initials"], renamed) },
  });
  const retry = await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  const { fetch } = createHandler(engine, { links });
  const body = new URLSearchParams({ action: "Yes" });
  const posted = await fetch(aRequest("POST", sent[1]!, { body }));
  const { wait } = await engine.signal(signed!.id, { signalId: "s", payload: 1 });
  const token = new URLSearchParams(sent[0]!.split("?")[1]).get("t")!;
  const opened = await links.open(token, engine);

  assert.deepEqual([sent.length, posted.status, opened?.wait.name], [3, 303, "approval"]);
  assert.equal(wait.name, "initials");
  const waits = await engine.getWaits(retry.id);
  assert.deepEqual(waits.map(({ name, status }) => [name, status]), [
    ["approval", "pending"],
    ["approval#2", "resolved"],
    ["initials", "resolved"],
  ]);
});

forEachStore("auth.onLink can refuse, nobody is authenticated, and no other hook is asked", async (world) => {
  const seen: unknown[] = [];
  const refuse = (name: string) => () => {
    seen.push(name);
    throw new Response(null, { status: 418 });
  };
  let hasLeft = false;
  let calls = 0;
  const auth = {
    authenticate: refuse("authenticate"),
    actor: refuse("actor"),
    tenant: refuse("tenant"),
    onRunAccess: refuse("onRunAccess"),
    onSignal: refuse("onSignal"),
    onOperate: refuse("onOperate"),
    onTrigger: refuse("onTrigger"),
    scopeRuns: refuse("scopeRuns"),
    onLink: (link: unknown, run: { id: string; input: unknown }, wait: { name: string }) => {
      assert.ok(Object.isFrozen(link) && Object.isFrozen(run) && Object.isFrozen(wait));
      seen.push([link, run.input, wait.name]);
      if (hasLeft) throw new Response("Ada has left", { status: 403 });
    },
  };
  await using service = aLinkedService(world, { auth, onRequest: () => void (calls += 1) });
  const { id, path } = await service.ask1("ask", { order: 7 });

  const shown = await service.open(path);
  hasLeft = true;
  const [get, post] = [await service.open(path), await service.post(path, { action: "Refund" })];

  const link = { for: "ada@example.com", actions: null, expiresAt: "2040-01-01T00:01:00.000Z" };
  assert.deepEqual([shown.status, get.status, get.html, post.status], [200, 403, "Ada has left", 403]);
  assert.deepEqual(seen, Array(3).fill([link, { order: 7 }, "approve"]));
  assert.equal((await waitOf(service, id)).status, "pending");
  calls = 0;
  await service.open("/link?t=forged");
  assert.equal(calls, 0, "onRequest runs for a request that has shown a right");
});

forEachStore("a page of another site cannot answer", async (world) => {
  await using service = aLinkedService(world);
  const { id, path } = await service.ask1("ask");

  const foreign = await service.post(path, { action: "Refund" }, {
    origin: "https://evil.example",
    "sec-fetch-site": "cross-site",
  });
  const hidden = await service.post(path, { action: "Refund" }, { origin: "null" });
  const own = await service.post(path, { action: "Refund" }, {
    origin: "http://localhost",
    "sec-fetch-site": "same-origin",
  });

  assert.deepEqual([foreign.status, hidden.status, own.status], [403, 403, 303]);
  assert.equal((await waitOf(service, id)).status, "resolved");
});

forEachStore(
  "a body that is no form, too large or slow is refused, and a store that does not answer is said",
  async (world) => {
    await using service = aLinkedService(world);
    const { id, path } = await service.ask1("ask");
    const asked = (body: BodyInit, headers: Record<string, string>) =>
      service.handler.fetch(aRequest("POST", path, { body, headers }));

    const json = await asked("{}", { "content-type": "application/json" });
    const large = await asked(`action=${"x".repeat(70_000)}`, { "content-type": "application/x-www-form-urlencoded" });
    await json.body?.cancel();
    await large.body?.cancel();
    const errors: unknown[] = [];
    const failing = createHandler(service.engine, {
      links: { ...service.links, read: () => Promise.reject(new StoreError("gone")) },
      onError: (error) => void errors.push(error),
    });
    const gone = await failing.fetch(aRequest("GET", path));

    assert.deepEqual([json.status, large.status, gone.status, gone.headers.get("retry-after")], [415, 413, 503, "1"]);
    assert.match(await gone.text(), /<h1>This page is not available now<\/h1>/);
    assert.deepEqual(errors.map((error) => error instanceof StoreError), [true]);
    assert.equal((await waitOf(service, id)).status, "pending");
  },
);

forEachStore("hostile metadata is shown as text, and not all of it", async (world) => {
  await using service = aLinkedService(world);
  const facts = Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`fact ${n}`, n]));
  const markup = '</h1><script>alert(1)</script><img src=x onerror="x">\'';
  const metadata = JSON.parse(
    JSON.stringify({
      message: markup,
      [markup]: markup,
      long: "x".repeat(100_000),
      nested: { secret: "not shown" },
      actions: [{ label: markup, payload: 1 }],
      ...facts,
    }).replace("{", '{"__proto__":"own",'),
  );
  const { path } = await service.ask1("ask", { metadata });

  const { html, status } = await service.open(path);

  assert.equal(status, 200);
  assert.ok(!html.includes("<script") && !html.includes("<img") && !html.includes("not shown"));
  assert.ok(html.includes("<dt>__proto__</dt><dd>own</dd>"));
  assert.ok(html.length < 20_000, `${html.length} characters`);
  assert.equal((await service.post(path, { action: markup })).status, 303);
});

forEachStore("2,000 random requests to /link answer, and none is an error of the service", async (world) => {
  const errors: unknown[] = [];
  await using service = aLinkedService(world, { onError: (error) => void errors.push(error) });
  const { id, path } = await service.ask1("form");
  const chance = new Chance(3, "links");
  const pick = <T>(...values: T[]) => values[Math.floor(chance.next() * values.length)]!;
  const junk = () =>
    pick("", "x", "true", "12", "\u0000", "é🙂", "[object Object]", "f0=1&f1", "1e999", "x".repeat(5_000));

  for (let n = 0; n < 2_000; n++) {
    const query = pick(path, path, `${path}${junk()}`, "/link", `/link?t=${encodeURIComponent(junk())}`);
    const fields = {
      [pick("f0", "f1", "f2", "action", "__proto__", junk())]: junk(),
      f1: pick("", "x", "1e999", "12.5", "20000"),
    };
    const { status } = await service.post(query, fields);
    assert.ok(status < 500, `${query}: ${status}`);
  }
  assert.deepEqual(errors, []);
  assert.equal((await waitOf(service, id)).status, "pending");
});

forEachStore("no event, log line or error contains a token", async (world) => {
  const heard: string[] = [];
  await using service = aLinkedService(world, { onError: (error) => void heard.push(String(error)) });
  service.engine.on("*", (event) => void heard.push(JSON.stringify(event)));
  const { path } = await service.ask1("ask");
  const mac = path.split(".").at(-1)!;
  await service.post(path, { action: "Refund" });
  await service.engine.runUntilIdle();

  const metrics = await (await service.handler.fetch(aRequest("GET", "/metrics"))).text();
  const [run] = (await service.engine.getRuns()).runs;
  const waits = JSON.stringify([await service.engine.getWaits(run!.id), await service.engine.getSteps(run!.id)]);

  for (const text of [...heard, metrics, waits]) assert.ok(!text.includes(mac));
  assert.ok(!JSON.stringify(service.engine).includes(LINK_KEY));
});

forEachStore("a handler without links has no such path, and one with links needs their host", async (world) => {
  await using service = aLinkedService(world);
  const { path } = await service.ask1("ask");
  const plain = createHandler(service.engine);
  const { links } = service;

  const { status } = await plain.fetch(aRequest("GET", path));

  assert.equal(status, 404);
  assert.throws(
    () => createHandler(service.engine, { links, allowedHosts: ["app.example.com"] }),
    /^TypeError: The host of the links, localhost, is not one of allowedHosts$/,
  );
  assert.throws(
    () => createHandler(service.engine, { links: {} as never }),
    /links must be what signedLinks\(\) returns/,
  );
  createHandler(service.engine, { links, allowedHosts: ["localhost"] });
});

forEachStore("links.open() serves a page of one's own", async (world) => {
  await using service = aLinkedService(world);
  const { engine, links, host } = service;
  const { id, path } = await service.ask1("ask");
  const token = new URLSearchParams(path.split("?")[1]).get("t")!;

  const link = (await links.open(token, engine))!;
  await engine.signal(link.wait.id, { signalId: link.signalId, payload: { ok: true } }, { by: link.for! });

  assert.deepEqual([link.wait.name, link.for, link.actions], ["approve", "ada@example.com", null]);
  assert.equal((await waitOf(service, id)).signalledBy, "ada@example.com");
  assert.equal((await service.open(path)).heading, THANKS);
  assert.equal(await links.open(`${token}x`, engine), null);
  host.advance(60_000);
  assert.equal(await links.open(token, engine), null);
});
