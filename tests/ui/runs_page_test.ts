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
  await page.locator("tbody tr").nth(2).waitFor();
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
