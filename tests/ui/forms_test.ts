import assert from "node:assert/strict";
import { uiTest, untilStatus } from "./support/browser.ts";

uiTest("the form of a wait comes from the wait alone", async ({ service, open, context }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.askPrice.trigger({ product: "lamp" });
  await untilStatus(service, id, "waiting");
  // As if there were more open waits than one part has.
  await context.route(/waits\/open/, (route) => route.fulfill({ json: { waits: [], total: null, next: "later" } }));
  const page = await open(`runs/${id}`);
  const form = page.getByRole("group", { name: "Send a signal to price" });

  await form.getByLabel("amount").fill("12.5");
  await form.getByLabel("currency").selectOption("USD");
  await form.getByLabel("buyers").fill(`["ana"]`);
  await form.getByLabel("reason").fill("on sale");
  const title = await form.getByRole("button", { name: "Send", exact: true }).getAttribute("title");
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await page.locator(".title").getByText("Completed").waitFor();

  const payload = { amount: 12.5, currency: "USD", buyers: ["ana"], reason: "on sale" };
  assert.equal(title, `Sends ${JSON.stringify(payload)}`);
  assert.deepEqual((await engine.getWaits(id))[0]?.payload, payload);
});

uiTest("what a signal is refused for stands beside the field", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.askPrice.trigger({ product: "lamp" });
  await untilStatus(service, id, "waiting");
  const page = await open(`runs/${id}`);
  const form = page.getByRole("group", { name: "Send a signal to price" });

  await form.getByLabel("amount").fill("0");
  await form.getByLabel("currency").selectOption("EUR");
  await form.getByLabel("reason").fill("free");
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await form.getByRole("alert").waitFor();

  const field = form.getByLabel("amount");
  const words = await page.locator(`[id="${await field.getAttribute("aria-describedby")}"]`).textContent();
  assert.equal(await field.getAttribute("aria-invalid"), "true");
  assert.match(words!, /1/);
  assert.equal(await form.getByRole("alert").count(), 1);
  assert.equal((await engine.getWaits(id))[0]?.status, "pending");
}, { expectedErrors: /400/ });

uiTest("the box for JSON is a choice, and empty", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.askPrice.trigger({ product: "lamp" });
  await untilStatus(service, id, "waiting");
  const page = await open("waits");
  await page.getByRole("button", { name: "price" }).click();
  const form = page.getByRole("group", { name: "Send a signal to price" });
  const box = form.getByLabel("Payload of price");

  const before = await box.count();
  await form.getByRole("button", { name: "Send JSON" }).click();
  const text = await box.inputValue();
  await box.fill(`{ "amount": 3 }`);
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await form.getByRole("alert").getByText("currency").waitFor();
  await box.fill(`{ "amount": 3, "currency": "EUR", "reason": null }`);
  await form.getByRole("button", { name: "Send", exact: true }).click();
  await untilStatus(service, id, "completed");

  assert.deepEqual([before, text], [0, ""]);
}, { expectedErrors: /400/ });

uiTest("the buttons of a wait say what they send", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.importCsv.trigger({ file: "a.csv", rows: 1 });
  await untilStatus(service, id, "waiting");
  const page = await open(`runs/${id}`);

  await page.getByLabel("note").fill("late");

  assert.equal(
    await page.getByRole("button", { name: "approved: no" }).getAttribute("title"),
    `Sends {"note":"late","approved":false}`,
  );
});

uiTest("metadata is a tree, and ids of runs in it are links", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.askPrice.trigger({ product: "lamp" });
  await untilStatus(service, id, "waiting");
  const page = await open(`runs/${id}`);
  const tree = page.locator(".ask dl").first();

  await tree.getByText("currency").waitFor();

  const [link, words] = [tree.getByRole("link"), (await tree.textContent())!.replaceAll(/\s+/g, " ")];
  assert.equal(await link.getAttribute("href"), "#/runs/01935420-7a3e-7000-8000-000000000001");
  assert.doesNotMatch(words, /[{["]/);
  assert.match(words, /sizes ?1 ?S ?2 ?M/);
});

const METADATA: [metadata: unknown, shown: string][] = [
  [
    { rate: 0.00045, order: 20261129, small: -1e-7, actions: [{ label: "Pay" }] },
    "rate 0.00045 order 20261129 small -1e-7",
  ],
  ["Refund order 7?", "Refund order 7?"],
  [["a", 2], "1 a 2 2"],
  [7, "7"],
];

uiTest("metadata is shown with all digits, and also if it is no object", async ({ service, open, context }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.askPrice.trigger({ product: "lamp" });
  await untilStatus(service, id, "waiting");
  let metadata: unknown;
  await context.route(/\/waits\?/, async (route) => {
    const response = await route.fetch();
    const waits = await response.json();
    await route.fulfill({ response, json: waits.map((wait: object) => ({ ...wait, metadata })) });
  });

  for (const [given, shown] of METADATA) {
    metadata = given;
    const page = await open(`runs/${id}`);
    await page.getByText("Metadata").waitFor();
    assert.equal((await page.locator(".ask .stack").first().innerText()).replaceAll(/\s+/g, " "), `Metadata ${shown}`);
    await page.close();
  }
});

uiTest(
  "a number is sent as it was entered, and refused at its field if it would be rounded",
  async ({ service, open }) => {
    const { engine } = service;
    await engine.start();
    const { id } = await engine.jobs.askPrice.trigger({ product: "lamp" });
    await untilStatus(service, id, "waiting");
    const page = await open(`runs/${id}`);
    const form = page.getByRole("group", { name: "Send a signal to price" });
    const amount = form.getByLabel("amount");
    const send = form.getByRole("button", { name: "Send", exact: true });
    await form.getByLabel("currency").selectOption("USD");
    await form.getByLabel("reason").fill("on sale");

    await amount.fill("9007199254740993");
    await send.click();
    await form.getByRole("alert").getByText("has more digits than a number keeps").waitFor();
    const refused = [await amount.getAttribute("aria-invalid"), await amount.inputValue()];
    await amount.fill("1234.5670");
    await send.click();
    await page.locator(".title").getByText("Completed").waitFor();

    assert.deepEqual(refused, ["true", "9007199254740993"]);
    assert.deepEqual((await engine.getWaits(id))[0]?.payload, { amount: 1234.567, currency: "USD", reason: "on sale" });
  },
);
