import assert from "node:assert/strict";
import { uiTest } from "./support/browser.ts";
import { services } from "./support/demo_service.ts";

uiTest(
  "a group of failures opens as a list, is retried as one, and is no longer to be done",
  async ({ service, open, context }) => {
    const { engine } = service;
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    for (let order = 0; order < 4; order++) await engine.jobs.fail.trigger({ order });
    await engine.jobs.makeFilm.trigger({ clips: 100, unlicensed: 0 });
    await engine.runUntilIdle();
    const page = await open();

    await page.getByRole("link", { name: "HTTP # for order #" }).click();
    await page.getByText("4 runs of 4 with any error").waitFor();
    await page.getByRole("button", { name: "Copy the error" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    services.areUp = true;
    await page.getByRole("button", { name: "Retry these 4" }).click();
    await page.getByRole("button", { name: "Retrigger from the failure: 4" }).click();
    await page.getByText("4 runs done").or(page.getByText("4 runs of 4")).first().waitFor();
    while ((await engine.getRuns({ jobName: "charge-card", limit: 0 })).total < 8) await page.waitForTimeout(25);
    await engine.runUntilIdle();
    await page.goto(`${service.url}#/runs?status=failed&jobName=charge-card`);
    const marks = page.getByRole("link", { name: "retry completed" });
    await marks.nth(3).waitFor();
    await page.getByRole("button", { name: "No completed retry" }).click();
    await page.getByText("0 runs", { exact: true }).waitFor();
    const hash = new URL(page.url()).hash;
    await page.goto(`${service.url}#/`);
    const tile = page.locator(".tile").nth(4);
    await tile.getByText("4 more completed in a retry").waitFor();

    assert.equal(copied, "HTTP # for order #");
    assert.equal(hash, "#/runs?jobName=charge-card&status=failed&retried=false");
    assert.match((await tile.textContent())!, /^Failed2/); // a clip and its film
  },
);

uiTest("a group among other errors of its job lists its own runs alone", async ({ service, open }) => {
  const { engine } = service;
  await engine.jobs.fail.trigger({ order: 1 });
  await engine.runUntilIdle();
  const { runs: [run] } = await engine.getRuns();
  const page = await open(`runs?jobName=charge-card&status=failed&error=${encodeURIComponent("another error")}`);

  await page.getByText("0 runs of 1 with any error").waitFor();

  assert.equal(run?.status, "failed");
  assert.equal(await page.getByRole("button", { name: /^Retry these/ }).count(), 0);
});
