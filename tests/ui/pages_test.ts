import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import type { Route } from "playwright-core";
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

uiTest("each part of the overview that fails shows its own error, and the rest works", async (opened) => {
  const { service: { engine }, open, context } = opened;
  await engine.jobs.quick.trigger({ n: 1 });
  await engine.jobs.quick.trigger({ n: 2 });
  await engine.start();
  const broken = (error: string) => (route: Route) => route.fulfill({ status: 500, json: { error } });
  await context.route(/\/failures$/, broken("the failures are broken"));
  await context.route(/\/series/, broken("the series are broken"));
  await context.route(/\/workers$/, (route) => route.fulfill({ json: [{}] }));
  const page = await open();

  await page.getByRole("region", { name: "Failures by error" }).getByText("the failures are broken").waitFor();
  for (const title of ["Ended per minute", "Start delay"]) {
    await page.getByRole("region", { name: title }).getByText("the series are broken").waitFor();
  }
  await page.getByRole("region", { name: "Workers" }).getByText("This part could not be shown").waitFor();
  await page.getByRole("region", { name: "Jobs" }).getByText("resize").waitFor();
  assert.match((await page.locator(".tile").allTextContents()).join(" "), /Completed2/);

  await context.route(/\/stats$/, broken("the counts are broken"));
  const other = await open();
  await other.getByRole("region", { name: "Jobs" }).getByText("the counts are broken").waitFor();
  await other.getByRole("region", { name: "Failures by error" }).waitFor();
}, { expectedErrors: /console|null/ });

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

uiTest("a fresh database shows what to do first", async ({ service, open }) => {
  const page = await open();

  await page.getByRole("heading", { name: "No run yet" }).waitFor();
  await page.getByText("Start a worker").waitFor();

  assert.equal(await page.locator("figure, .tile").count(), 0);
  await page.getByRole("navigation", { name: "Pages", exact: true }).getByText("Holdfast 0.1.0").waitFor();
  await service.engine.jobs.quick.trigger({ n: 1 });
  await page.locator(".tile").first().waitFor();
});

uiTest("what needs attention is listed, the newest first, with links", async ({ service, open, context }) => {
  const { engine } = service;
  const at = (minutesAgo: number) => new Date(Date.now() - minutesAgo * 60_000).toISOString();
  await engine.start();
  for (let order = 0; order < 3; order++) await engine.jobs.fail.trigger({ order });
  while ((await engine.getRuns({ status: "failed", limit: 0 })).total < 3) await setTimeout(25);
  await engine.pauseJob("resize", { by: "ana", note: "too slow" });
  const checks = [
    { name: "writes", status: "degraded", message: "Writes fail: the disk is full" },
    { name: "retention", status: "degraded", message: "1,200,000 runs have ended, and this engine deletes none" },
    { name: "due_runs", status: "degraded", message: "said by the job" },
    { name: "outbox", status: "degraded", message: 'The outbox of data source "app" has 3 refused rows', value: 3 },
  ];
  await context.route(
    /\/health$/,
    (route) => route.fulfill({ status: 503, json: { status: "failing", ready: false, live: true, checks } }),
  );
  const waits = [120, 50, 5].map((minutes) => ({
    ...{ id: String(minutes), name: "review", jobName: "import-csv" },
    createdAt: at(minutes),
    deadlineAt: at(minutes - 60),
  }));
  waits[0]!.deadlineAt = at(-1);
  // In parts, as a service answers that asks a hook about each wait.
  await context.route(/waits\/open/, (route) => {
    const next = new URL(route.request().url()).searchParams.get("cursor");
    return route.fulfill({
      json: {
        waits: next === null ? waits.slice(0, 1) : waits.slice(1),
        total: null,
        next: next === null ? "2" : null,
      },
    });
  });
  const schedule = { name: "nightly", jobName: "resize", dueSince: at(180), error: null, nextRuns: [] };
  await context.route(/\/schedules$/, (route) => route.fulfill({ json: [schedule] }));
  const lost = {
    ...(await engine.getWorkers())[0],
    id: "w",
    name: "web-9",
    state: "lost",
    lastSeenAt: at(200),
    leases: 2,
  };
  await context.route(/\/workers$/, (route) => route.fulfill({ json: [lost] }));
  const page = await open();
  const list = page.locator(".attention li");

  await list.filter({ hasText: "Writes fail" }).waitFor();
  await list.nth(7).or(list.nth(6)).first().waitFor();
  await list.filter({ hasText: "2 waits are over half of their time" }).waitFor();
  const words = await page.locator(".attention .what").allTextContents();
  const links = await list.getByRole("link").evaluateAll((found) => found.map((each) => each.getAttribute("href")));

  assert.deepEqual(words.map((each) => each.replaceAll(/ [\d.]+ (s|ms)\b| \([\d.]+ %\)/g, "").slice(0, 44)), [
    "Writes fail: the disk is full",
    "1,200,000 runs have ended, and this engine d",
    'The outbox of data source "app" has 3 refuse',
    "resize has been paused for by ana",
    "3 runs failed in the last hour, usually none",
    "2 waits are over half of their time",
    "Schedule nightly has missed its slot 3 h ago",
    "Worker web-9 has not been seen for 3 h 20 mi",
  ]);
  assert.match(links[3]!, /^#\/runs\?status=failed&retried=false&completedAfter=/);
  assert.deepEqual([links[2], ...links.slice(4)], ["#/jobs/resize", "#/waits", "#/schedules", "#/workers"]);
  assert.equal(await page.getByRole("navigation", { name: "Pages", exact: true }).getByText("3 open").count(), 1);
}, { expectedErrors: /503/ });
