import assert from "node:assert/strict";
import { uiTest, untilStatus } from "./support/browser.ts";

uiTest("the overview shows counts, and what needs attention", async ({ service, open }) => {
  const { engine } = service;
  await engine.jobs.quick.trigger({ n: 1 });
  await engine.jobs.quick.trigger({ n: 2 });
  const page = await open();

  await page.getByText("2 runs of resize cannot start: no live worker has this job").waitFor();
  await engine.start();
  await page.getByText("Nothing needs attention").waitFor();

  assert.match((await page.locator(".tile").allTextContents())[3]!, /^Completed2/);
  await page.getByRole("region", { name: "Workers" }).getByText("web-1").waitFor();
});

uiTest("a wait is signalled on the page of waits", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.importCsv.trigger({ file: "a.csv", rows: 5 });
  await untilStatus(service, id, "waiting");
  const page = await open("waits");

  await page.getByRole("button", { name: "review" }).click();
  await page.getByText("a.csv").waitFor();
  await page.getByRole("button", { name: "approved: yes" }).click();
  await page.getByText("No run waits for a signal").waitFor();
  await untilStatus(service, id, "completed");

  assert.deepEqual((await engine.getWaits(id))[0]?.payload, { approved: true });
});

uiTest("a job is paused with a note, resumed, and triggered with JSON", async ({ service, open }) => {
  const { engine } = service;
  const page = await open("jobs");
  await page.getByRole("link", { name: "resize" }).click();

  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByLabel("Note, for others").fill("the disk is full");
  await page.getByRole("button", { name: "Pause the job" }).click();
  await page.getByText("the disk is full").waitFor();
  const paused = (await engine.getJobs()).find(({ jobName }) => jobName === "resize")?.paused;
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await page.getByLabel("Input as JSON").fill(`{ "n": "seven" }`);
  await page.getByRole("button", { name: "Trigger" }).click();
  await page.getByRole("alert").getByText("expected number").waitFor();
  await page.getByLabel("Input as JSON").fill(`{ "n": 7 }`);
  await page.getByRole("button", { name: "Trigger" }).click();
  await page.getByRole("heading", { name: "Timeline" }).waitFor();

  const { runs } = await engine.getRuns();
  assert.equal(paused?.note, "the disk is full");
  assert.deepEqual(runs.map(({ payload }) => payload), [{ n: 7 }]);
}, { expectedErrors: /400/ });

uiTest("a schedule is paused, resumed and triggered", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const page = await open("schedules");

  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Resume" }).waitFor();
  const pausedAt = (await engine.schedules.get("nightly"))?.pausedAt;
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await page.getByRole("button", { name: "Trigger now" }).click();
  await page.locator(".title").getByText("Completed").waitFor();

  assert.notEqual(pausedAt, null);
  assert.equal((await engine.getRuns()).runs[0]?.scheduleName, "nightly");
});

uiTest("the page of workers shows the host, the version and the slots", async ({ service, open }) => {
  await service.engine.start();
  const page = await open("workers");

  await page.getByRole("heading", { name: "web-1" }).waitFor();
  await page.getByText("2026.11.22").waitFor();
  await page.getByText("0 of 10").waitFor();
});

uiTest("pages find a server again that was killed, and show what has changed", async ({ service, open }) => {
  const { engine } = service;
  const { id } = await engine.jobs.quick.trigger({ n: 1 });
  const [list, run] = [await open("runs"), await open(`runs/${id}`)];
  await list.getByText("1 run", { exact: true }).waitFor();
  await run.locator(".title").getByText("Pending").waitFor();

  await service.whileDown(async () => {
    for (const page of [list, run]) await page.getByText("Reconnecting").waitFor();
    await engine.jobs.quick.trigger({ n: 2 });
    await engine.runUntilIdle();
  });
  await list.getByText("2 runs", { exact: true }).waitFor();
  await run.locator(".title").getByText("Completed").waitFor();

  for (const page of [list, run]) await page.locator(".live:not(.off)").waitFor();
  assert.equal(await list.getByRole("alert").count(), 0);
}, { expectedErrors: /ERR_|Failed to load/ });

uiTest("? lists the shortcuts, and turns single keys off", async ({ open }) => {
  const page = await open("runs");
  await page.getByRole("heading", { name: "Runs" }).waitFor();

  await page.keyboard.press("?");
  await page.getByLabel("Shortcuts of a single key are on").uncheck();
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");

  assert.equal(await page.getByRole("searchbox").evaluate((element) => element === document.activeElement), false);
});

uiTest("the overview reads numbers once a second at most, however many runs end", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const page = await open();
  await page.getByText("Nothing needs attention").waitFor();
  const readAt: number[] = [];
  page.on("request", (request) => {
    if (new URL(request.url()).pathname.endsWith("/stats")) readAt.push(performance.now());
  });

  const before = performance.now();
  for (let n = 0; n < 40; n++) {
    await engine.jobs.quick.batchTrigger(Array.from({ length: 10 }, () => ({ input: { n } })));
    await page.waitForTimeout(50);
  }
  await page.locator(".tile").nth(3).getByText("400", { exact: true }).waitFor();
  const seconds = (performance.now() - before) / 1_000;

  assert.ok(readAt.length >= 2 && readAt.length <= seconds + 2, `${readAt.length} times in ${seconds} s`);
});
