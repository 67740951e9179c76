import assert from "node:assert/strict";
import { uiTest, untilStatus } from "./support/browser.ts";
import { services } from "./support/demo_service.ts";

uiTest("the inbox shows what is unread and received, from whom and when, and sends by the schema", async (opened) => {
  const { service, open } = opened;
  const { engine } = service;
  services.areUp = true;
  const { id } = await engine.jobs.chat.trigger({ room: "7" });
  await engine.jobs.chat.send(id, "text", { text: "hello" }, { by: "ana" });
  const page = await open(`runs/${id}`);
  const inbox = page.getByRole("region", { name: "Inbox" });

  await inbox.getByText("1 unread", { exact: true }).waitFor();
  const before = await inbox.locator("li").textContent();
  const ofJob = await open("jobs/chat");
  await ofJob.getByText("Unread messages1", { exact: true }).waitFor();
  await engine.start();
  await ofJob.getByText("Unread messages0", { exact: true }).waitFor();
  await inbox.getByText("0 unread, 1 received").waitFor();
  await inbox.getByText(/received by next after/).waitFor();
  await inbox.getByRole("button", { name: "text", exact: true }).click();
  const payload = await inbox.getByRole("region", { name: "Payload of text" }).textContent();
  await inbox.getByLabel("text", { exact: true }).fill("x");
  await inbox.getByRole("button", { name: "Send", exact: true }).click();
  const problem = inbox.getByRole("alert");
  await problem.waitFor();
  await inbox.getByLabel("text", { exact: true }).fill("world");
  await inbox.getByLabel("times").fill("2");
  await inbox.getByRole("button", { name: "Send", exact: true }).click();
  await inbox.getByText("The message was accepted").waitFor();
  await inbox.getByText("0 unread, 2 received").waitFor();
  await inbox.getByRole("combobox", { name: "Send the message" }).selectOption("stop");
  await inbox.getByRole("button", { name: "Send without a payload" }).click();
  await page.locator(".title").getByText("Completed").waitFor();
  await inbox.getByText("0 unread, 3 received").waitFor();

  assert.match(before!, /text.*hello.*by ana/s);
  assert.deepEqual(JSON.parse(payload!), { text: "hello" });
  assert.deepEqual(
    (await engine.getMessages(id)).map(({ name, payload, sentBy }) => ({ name, payload, sentBy })),
    [
      { name: "text", payload: { text: "hello" }, sentBy: "ana" },
      { name: "text", payload: { text: "world", times: 2 }, sentBy: null },
      { name: "stop", payload: null, sentBy: null },
    ],
  );
  assert.equal(await inbox.getByRole("group", { name: "Send a message" }).count(), 0); // it has ended
  const rows = page.locator(".tl").getByRole("button", { name: /^next/ });
  assert.match((await rows.first().textContent())!, /received/);
}, { expectedErrors: /400/ });

uiTest("a message that is sent again after an error is one message", async ({ service, open, context }) => {
  const { engine } = service;
  const { id } = await engine.jobs.chat.trigger({ room: "7" });
  const page = await open(`runs/${id}`);
  const inbox = page.getByRole("region", { name: "Inbox" });
  await inbox.getByLabel("text", { exact: true }).fill("hello");

  // It is accepted, and the answer is lost.
  await context.route(/send\?/, async (route) => {
    await route.fetch();
    await route.abort();
  }, { times: 1 });
  await inbox.getByRole("button", { name: "Send", exact: true }).click();
  await inbox.getByRole("alert").waitFor();
  await inbox.getByRole("button", { name: "Send", exact: true }).click();
  await inbox.getByText("The message was accepted").waitFor();

  assert.equal((await engine.getMessages(id)).length, 1);
}, { expectedErrors: /ERR_FAILED/ });

uiTest("an inbox of many and large messages is read and drawn in parts", async ({ service, open, context }) => {
  const { engine } = service;
  const { id } = await engine.jobs.chat.trigger({ room: "7" });
  for (let n = 0; n < 450; n++) {
    await engine.jobs.chat.send(id, "text", { text: `line ${n} `.repeat(n === 0 ? 50_000 : 1) });
  }
  const asked: string[] = [];
  context.on("request", (request) => {
    const { pathname, searchParams } = new URL(request.url());
    if (pathname.endsWith("/messages")) asked.push(searchParams.get("limit") ?? "none");
  });
  const page = await open(`runs/${id}`);
  const inbox = page.getByRole("region", { name: "Inbox" });

  await inbox.getByText("450 unread").waitFor();
  const length = (await inbox.textContent())!.length;
  const drawn = await inbox.locator("li").count();
  await inbox.getByRole("button", { name: "Show more" }).click();

  assert.equal(drawn, 20);
  assert.equal(await inbox.locator("li").count(), 120);
  assert.ok(length < 5_000, `${length} characters`);
  assert.deepEqual([...new Set(asked)], ["200"]);
});

uiTest(
  "the page of a run shows its clean-up, and the list leaves clean-ups out until they are asked for",
  async (opened) => {
    const { service, open } = opened;
    const { engine } = service;
    await engine.start();
    const { id } = await engine.jobs.order.trigger({ order: 7 });
    await untilStatus(service, id, "waiting");
    await engine.cancel(id);
    const { endRunId } = (await engine.getRun(id))!;
    await untilStatus(service, endRunId!, "failed");
    const page = await open(`runs/${id}`);
    const panel = page.getByRole("region", { name: "Clean-up" });

    await panel.getByText("undo reserve", { exact: true }).waitFor();
    const rows = await panel.getByRole("listitem").filter({ hasText: "undo" }).allTextContents();
    await panel.getByText("The warehouse does not answer").waitFor();
    const overview = await open();
    const point = overview.locator(".attention li").filter({ hasText: "1 clean-up failed" });
    await point.getByText("order:end: The warehouse does not answer").waitFor();
    const link = await point.getByRole("link").getAttribute("href");
    services.areUp = true;
    const { id: retry } = await engine.retrigger(endRunId!, { from: "failure" });
    await untilStatus(service, retry, "completed");
    await panel.getByText("in a retry").waitFor();
    await panel.getByText("Completed").first().waitFor();
    await panel.getByRole("link", { name: "Open the clean-up" }).click();
    await page.getByRole("heading", { name: "order:end" }).waitFor();
    await page.goto(`${service.url}#/runs`);
    await page.getByText("1 run", { exact: true }).waitFor();
    const hidden = await page.locator("tbody tr").count();
    await page.getByRole("button", { name: "Clean-ups" }).click();
    await page.getByText("3 runs", { exact: true }).waitFor();

    assert.deepEqual(rows.map((row) => row.replace(/\d.*$/s, "").replaceAll(/\s+/g, " ").trim()), [
      "Completed undo charge",
      "Failed undo reserve",
    ]);
    assert.equal(hidden, 1);
    assert.equal(link, `#/runs/${endRunId}`);
    assert.equal(await page.locator("tbody tr").count(), 3);
    assert.equal(new URL(page.url()).hash, "#/runs?ends=shown");
  },
);
