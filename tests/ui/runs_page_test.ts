import assert from "node:assert/strict";
import { uiTest } from "./support/browser.ts";

uiTest("the list of runs filters by status, job and label, and its address keeps that", async ({ service, open }) => {
  const { engine } = service;
  for (let n = 0; n < 3; n++) {
    await engine.jobs.fail.trigger({ order: n }, { labels: { org: n === 0 ? "acme" : "globex" } });
  }
  await engine.jobs.quick.trigger({ n: 1 });
  await engine.runUntilIdle();
  const page = await open("runs");
  await page.getByText("4 runs").waitFor();

  await page.getByRole("group", { name: "Status" }).getByRole("button", { name: /Failed/ }).click();
  await page.getByText("3 runs").waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("org=acme");
  await page.keyboard.press("Enter");
  await page.getByText("1 run", { exact: true }).waitFor();
  const hash = new URL(page.url()).hash;
  await page.reload();
  await page.getByText("1 run", { exact: true }).waitFor();
  await page.getByText("charge: HTTP 402 for order 0").waitFor();

  assert.equal(hash, "#/runs?status=failed&label.org=acme");
});

uiTest("a search for an id opens its run", async ({ service, open }) => {
  const { id } = await service.engine.jobs.quick.trigger({ n: 1 });
  const page = await open("runs");

  await page.getByRole("searchbox").fill(id);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "resize" }).waitFor();

  assert.equal(new URL(page.url()).hash, `#/runs/${id}`);
});

uiTest("the list of runs is walked and opened by keys", async ({ service, open }) => {
  const { engine } = service;
  const ids: string[] = [];
  for (let n = 0; n < 3; n++) ids.push((await engine.jobs.quick.trigger({ n })).id);
  const page = await open();
  await page.getByRole("heading", { name: "Overview" }).waitFor();

  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await page.getByRole("region", { name: "List of runs" }).locator("tbody tr").nth(2).waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByText("1 selected").waitFor();
  await page.keyboard.press("k");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "resize" }).waitFor();

  assert.equal(new URL(page.url()).hash, `#/runs/${ids[1]}`);
});

uiTest("keys that follow g and a page do not act on the page that is left", async ({ open }) => {
  const page = await open();
  await page.getByRole("region", { name: "Jobs" }).getByRole("link", { name: "ask-price" }).waitFor();

  const focused = await page.evaluate(async () => {
    for (const key of ["g", "r", "j"]) {
      document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      await null; // what follows a key at once
    }
    return [document.querySelector("h1")?.textContent, document.activeElement?.closest("main, tr")?.localName];
  });

  assert.deepEqual(focused, ["Runs", "main"]);
});

uiTest("/ right after g and a page leads into the search", async ({ service, open }) => {
  await service.engine.jobs.quick.trigger({ n: 1 });
  const page = await open();
  await page.getByRole("heading", { name: "Overview" }).waitFor();

  for (const key of ["g", "r", "/"]) await page.keyboard.press(key);
  await page.getByText("1 run", { exact: true }).waitFor(); // the page has settled
  await page.keyboard.type("acme");

  assert.equal(await page.getByRole("searchbox").inputValue(), "acme");
});

uiTest("a run that is triggered before the stream opens is shown", async ({ service, open, context }) => {
  const opened = Promise.withResolvers<void>();
  await context.route(/runs\/subscribe/, async (route) => {
    await opened.promise;
    await route.continue();
  });
  const page = await open("runs");
  await page.getByText("0 runs", { exact: true }).waitFor();

  await service.engine.jobs.quick.trigger({ n: 1 });
  opened.resolve();
  await page.getByText("1 run", { exact: true }).waitFor({ timeout: 8_000 }); // it is read every 15 s otherwise
});

uiTest("new runs move no row while one has the focus or the pointer", async ({ service, open }) => {
  const { engine } = service;
  const { id } = await engine.jobs.quick.trigger({ n: 1 });
  const page = await open("runs");
  const row = page.locator("tbody tr");
  const button = page.getByRole("button", { name: "1 new run" });
  await row.waitFor();

  await page.keyboard.press("j");
  await engine.jobs.quick.trigger({ n: 2 });
  await button.waitFor();
  const whileFocused = await row.count();
  const focused = await page.evaluate(() => document.activeElement?.getAttribute("href"));
  await button.click();
  await row.nth(1).waitFor();
  await row.nth(1).hover();
  await engine.cancel(id);
  await row.nth(1).getByText("cancelled").waitFor();
  await engine.jobs.quick.trigger({ n: 3 });
  await button.waitFor();
  const whileHovered = await row.count();
  await page.mouse.move(0, 0);
  await engine.jobs.quick.trigger({ n: 4 });
  await row.nth(3).waitFor();

  assert.equal(focused, `#/runs/${id}`);
  assert.deepEqual([whileFocused, whileHovered, await button.count()], [1, 2, 0]);
});

uiTest("new runs wait behind a button while some are selected", async ({ service, open }) => {
  const { engine } = service;
  await engine.jobs.quick.trigger({ n: 1 });
  const page = await open("runs");
  await page.getByText("1 run", { exact: true }).waitFor();
  await page.getByRole("checkbox", { name: /Select run/ }).check();

  await engine.jobs.quick.trigger({ n: 2 });
  await page.getByRole("button", { name: "1 new run" }).waitFor();
  const rows = await page.locator("tbody tr").count();
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByText("2 runs").waitFor();

  assert.equal(rows, 1);
});

uiTest("the selected runs are retried from their failure, then deleted", async ({ service, open }) => {
  const { engine } = service;
  await engine.jobs.fail.trigger({ order: 1 });
  await engine.jobs.fail.trigger({ order: 2 });
  await engine.runUntilIdle();
  await engine.jobs.quick.trigger({ n: 1 });
  const page = await open("runs");
  const selection = page.getByRole("region", { name: "Selection" });
  await page.getByText("3 runs", { exact: true }).waitFor();

  await page.getByRole("checkbox", { name: "Select all of this page" }).check();
  await selection.getByRole("button", { name: "Retrigger from the failure" }).click();
  await page.getByText("1 selected run cannot: their state does not allow it.").waitFor();
  await page.getByRole("button", { name: "Retrigger from the failure: 2" }).click();
  await page.getByText("5 runs", { exact: true }).waitFor();
  const retries = (await engine.getRuns({ status: "pending" })).runs;
  await page.getByRole("group", { name: "Status" }).getByRole("button", { name: /Failed/ }).click();
  await page.getByText("2 runs", { exact: true }).waitFor();
  await page.getByRole("checkbox", { name: "Select all of this page" }).check();
  await selection.getByRole("button", { name: "Delete" }).click();
  await page.getByText("This cannot be undone.").waitFor();
  await page.getByRole("button", { name: "Delete: 2" }).click();
  await page.getByText("0 runs", { exact: true }).waitFor();

  const { runs } = await engine.getRuns();
  assert.equal(retries.filter(({ retriggerOf }) => retriggerOf !== null).length, 2);
  assert.deepEqual(runs.map(({ status }) => status), ["pending", "pending", "pending"]);
});

uiTest("1,200 runs are cancelled by a filter, after a dry run that counts them", async ({ service, open }) => {
  const { engine } = service;
  await engine.jobs.quick.batchTrigger(Array.from({ length: 600 }, (_, n) => ({ input: { n } })));
  await engine.jobs.quick.batchTrigger(Array.from({ length: 600 }, (_, n) => ({ input: { n } })));
  await engine.jobs.fail.trigger({ order: 1 });
  const page = await open("runs?jobName=resize&status=pending");
  await page.getByText("1,200 runs", { exact: true }).waitFor();

  await page.getByRole("checkbox", { name: "Select all of this page" }).check();
  await page.getByRole("button", { name: "Select all 1,200 that match" }).click();
  await page.getByRole("region", { name: "Selection" }).getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("heading", { name: "Cancel: 1,200 runs" }).waitFor();
  const before = await engine.getRuns({ status: "cancelled", limit: 0 });
  await page.getByRole("button", { name: "Cancel: 1,200" }).click();
  await page.getByText("0 runs", { exact: true }).waitFor({ timeout: 60_000 });

  const [cancelled, others] = [
    await engine.getRuns({ status: "cancelled", limit: 0 }),
    await engine.getRuns({ status: "pending", limit: 0 }),
  ];
  assert.deepEqual([before.total, cancelled.total, others.total], [0, 1_200, 1]);
});

uiTest("a run that is unselected after all that match were selected is left out", async ({ service, open }) => {
  const { engine } = service;
  await engine.jobs.quick.batchTrigger(Array.from({ length: 60 }, (_, n) => ({ input: { n } })));
  const page = await open("runs?jobName=resize&status=pending");
  const selection = page.getByRole("region", { name: "Selection" });

  await page.getByRole("checkbox", { name: "Select all of this page" }).check();
  await selection.getByRole("button", { name: "Select all 60 that match" }).click();
  await selection.getByText("All 60 that match").waitFor();
  await page.getByRole("checkbox", { name: /^Select run/ }).first().uncheck();
  await selection.getByText("49 selected").waitFor();
  await selection.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Cancel: 49" }).click();
  await page.getByText("11 runs", { exact: true }).waitFor();

  assert.equal((await engine.getRuns({ status: "pending", limit: 0 })).total, 11);
});
