import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import type { Locator } from "playwright-core";
import { uiTest, untilStatus } from "./support/browser.ts";
import { services } from "./support/demo_service.ts";
import { heldFilm } from "./support/held_film.ts";

const MAX_WALK_MS = 60_000;

/** Presses Tab, or another key, until a button or a link has the focus, then Enter. */
async function press(target: Locator, key = "Tab"): Promise<void> {
  const { keyboard } = target.page();
  await target.waitFor();
  for (let n = 0; n < 200; n++) {
    if (await hasFocus(target)) return await keyboard.press("Enter");
    await keyboard.press(key);
  }
  assert.fail(`${key} does not lead to ${target}`);
}

function hasFocus(target: Locator): Promise<boolean> {
  return target.evaluate((element) => element === document.activeElement);
}

uiTest(
  "on call: a deploy held 3 of 2,000 children; find out why, mend it, resume, by keyboard alone",
  async ({ service, open }) => {
    const { engine } = service;
    services.areUp = true;
    const parentId = await heldFilm(service, { clips: 2_000, unlicensed: 3 });
    while ((await engine.getRuns({ status: "completed", limit: 0 })).total < 1_997) await setTimeout(100);
    const page = await open();
    const point = page.locator(".attention li").filter({ hasText: "3 runs of make-clip are held" });
    await point.waitFor();
    const since = performance.now();

    // The overview says what is new, and leads to the runs.
    await point.getByText(`"extract-frames"`).first().waitFor();
    await press(point.getByRole("link"), "j"); // a slow machine has other points, too
    await page.getByText("3 runs", { exact: true }).waitFor();
    await press(page.locator("main tbody").getByRole("link").first(), "j");
    // The page of the run says why, and leads to its parent.
    await page.locator(".banner").getByText(`"extract-frames"`).first().waitFor();
    const main = page.locator("main");
    await press(main.getByRole("link", { name: "parent run" }));
    await page.locator(".banner").getByText("3 of its children are held").first().waitFor();
    await page.locator(".banner").getByText(/child make-clip .* held: .*"extract-frames"/i).waitFor();
    await page.getByRole("region", { name: "Children" }).getByRole("button", { name: /^Completed ?1,997$/ }).waitFor();
    // Somebody deploys code that fits.
    services.extractsFrames = false;
    await page.keyboard.press("g");
    await page.keyboard.press("o");
    await press(main.getByRole("button", { name: "Resume all" }));
    await point.waitFor({ state: "detached" });
    // The parent goes on.
    for (const key of ["g", "r", "/"]) await page.keyboard.press(key);
    await page.keyboard.type(parentId);
    await page.keyboard.press("Enter");
    await page.locator(".title").getByText("Completed").waitFor();

    const tookMs = performance.now() - since;
    assert.ok(tookMs < MAX_WALK_MS, `${tookMs} ms`);
    assert.equal((await engine.getRun(parentId))?.output, 2_000);
    assert.equal((await engine.getRuns({ held: true, limit: 0 })).total, 0);
  },
);

uiTest(
  "held runs are a chip of the list, and one of them can be resumed from the overview",
  async ({ service, open }) => {
    const { engine } = service;
    await heldFilm(service, { clips: 3, unlicensed: 2 });
    const page = await open("runs");

    await page.getByRole("group", { name: "Status" }).getByRole("button", { name: /^Held/ }).click();
    await page.getByText("2 runs", { exact: true }).waitFor();
    const hash = new URL(page.url()).hash;
    services.extractsFrames = false;
    await page.goto(`${service.url}#/`);
    await page.getByRole("button", { name: "Resume one" }).click();
    await page.getByText("1 run of make-clip is held").waitFor();

    assert.equal(hash, "#/runs?held=true");
    assert.equal((await engine.getRuns({ held: true, limit: 0 })).total, 1);
  },
);

uiTest("a point keeps the focus while its numbers change", async ({ service, open }) => {
  const { engine } = service;
  await heldFilm(service, { clips: 3, unlicensed: 3 });
  const [first] = (await engine.getRuns({ held: true })).runs;
  const page = await open();
  const link = page.locator(".attention li").filter({ hasText: "make-clip" }).getByRole("link");

  await page.getByText("3 runs of make-clip are held").waitFor();
  await link.focus();
  services.extractsFrames = false;
  await engine.resume(first!.id);
  await page.getByText("2 runs of make-clip are held").waitFor();

  assert.equal(await hasFocus(link), true);
});

uiTest("the page of a parent reads its children when they end, not every two seconds", async ({ service, open }) => {
  const { engine } = service;
  const { id } = await engine.jobs.makeFilm.trigger({ clips: 3, unlicensed: 2 });
  await engine.start();
  const waits = async () => (await engine.getOpenWaits({ jobName: "make-clip" })).waits;
  while ((await waits()).length < 2) await setTimeout(25);
  const page = await open();
  await page.clock.install();
  let reads = 0;
  page.on("request", (request) => void (new URL(request.url()).pathname.endsWith("/children") && reads++));
  await page.goto(`${service.url}#/runs/${id}`);
  const panel = page.getByRole("region", { name: "Children" });
  await panel.getByRole("button", { name: /^Completed ?1$/ }).waitFor();
  await page.clock.pauseAt(Date.now() + 3_000);
  const before = reads;
  await page.clock.runFor(6_000);
  const polled = reads - before;

  const [wait] = await waits();
  await engine.signal(wait!.id, { signalId: "go", payload: null });
  const shown = panel.getByRole("button", { name: /^Completed ?2$/ }).waitFor();
  let isShown = false;
  void shown.then(() => isShown = true, () => {});
  for (let n = 0; n < 20 && !isShown; n++) await Promise.all([page.clock.runFor(100), setTimeout(250)]);
  await shown;

  assert.ok(polled <= 1, `${polled} reads while nothing happened`);
});

uiTest("a failed parent shows its failed children, and how many a retry executes again", async ({ service, open }) => {
  const { engine } = service;
  const { id } = await engine.jobs.makeFilm.trigger({ clips: 250, unlicensed: 0 });
  await engine.start();
  await untilStatus(service, id, "failed");
  const page = await open(`runs/${id}`);
  const panel = page.getByRole("region", { name: "Children" });

  await panel.getByRole("button", { name: /^Failed ?2$/ }).waitFor();
  const first = await panel.locator("li").first().textContent();
  const listed = await panel.locator("li").count();
  await panel.getByRole("button", { name: "More" }).click();
  await panel.getByText("from 11").waitFor();
  await panel.getByRole("button", { name: /^Failed ?2$/ }).click();
  await panel.locator("li").nth(1).waitFor();
  const failed = await panel.locator("li").count();
  services.areUp = true;
  await page.getByText("None: the run has not completed.").waitFor();
  await page.getByText("A retry executes 2 of 250 children again").waitFor();
  await page.getByRole("button", { name: "Retrigger from the failure" }).click();
  await page.locator(".title").getByText("Completed").waitFor();
  await page.goto(`${service.url}#/runs/${id}`);
  await panel.locator("li").first().getByRole("link").click();
  await page.getByText("No codec for clip").first().waitFor();

  assert.match(first!, /Failed.*make-clip.*No codec for clip/s);
  assert.deepEqual([listed, failed], [10, 2]);
});
