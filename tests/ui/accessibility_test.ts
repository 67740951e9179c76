import assert from "node:assert/strict";
import axe from "axe-core";
import type { Page } from "playwright-core";
import { type Opened, uiTest, untilStatus } from "./support/browser.ts";
import { heldFilm } from "./support/held_film.ts";

const SIZES = [{ width: 1440, height: 900 }, { width: 390, height: 800 }];
const THEMES = ["light", "dark"] as const;

for (const colorScheme of THEMES) {
  for (const viewport of SIZES) {
    uiTest(`axe-core finds nothing on any page, ${colorScheme}, ${viewport.width} px wide`, async (opened) => {
      const found: string[] = [];
      for (const [path, text] of await somePages(opened)) {
        const page = await opened.open(path);
        await page.locator("main").getByText(text).first().waitFor();
        await openParts(page);
        found.push(...(await examine(page)).map((finding) => `${path}: ${finding}`));
        await page.close();
      }
      assert.deepEqual(found, []);
    }, { context: { colorScheme, viewport, bypassCSP: true } });
  }
}

uiTest("no page scrolls sideways at 320 px", async (opened) => {
  for (const [path, text] of await somePages(opened)) {
    const page = await opened.open(path);
    await page.locator("main").getByText(text).first().waitFor();

    const width = await page.evaluate(() => document.documentElement.scrollWidth);

    assert.ok(width <= 320, `${path}: ${width} px`);
    await page.close();
  }
}, { context: { viewport: { width: 320, height: 700 } } });

const LONG = "import_customer_accounts_from_the_legacy_database_of_acme_inc_".repeat(4);

for (const width of [320, 1440]) {
  uiTest(`no long name makes a page scroll sideways at ${width} px`, async ({ service, open, context }) => {
    const { engine } = service;
    await engine.start();
    const { id } = await engine.jobs.importCsv.trigger({ file: "prices.csv", rows: 5 }, { labels: { org: LONG } });
    await untilStatus(service, id, "waiting");
    await context.route(/\/(stats|jobs|runs|run|explain|timeline|waits|waits\/open)(\?|$)/, async (route) => {
      const response = await route.fetch();
      const body = (await response.text()).replaceAll("import-csv", LONG).replaceAll('"review"', `"${LONG}"`);
      await route.fulfill({ response, body });
    });

    for (const path of ["", "runs", `runs/${id}`, "waits", "jobs"]) {
      const page = await open(path);
      await page.locator("main").getByText(LONG).filter({ visible: true }).first().waitFor();
      const needed = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(needed <= width, `${path}: ${needed} px`);
      await page.close();
    }
  }, { context: { viewport: { width, height: 700 } } });
}

uiTest("on a phone no button has two lines, and no tile is too narrow for its words", async (opened) => {
  const wrong: string[] = [];
  for (const [path, text] of await somePages(opened)) {
    const page = await opened.open(path);
    await page.locator("main").getByText(text).first().waitFor();

    wrong.push(
      ...await page.locator(".buttons button, .buttons .button, .tile, .tile > span").evaluateAll(
        (found, path) =>
          (found as HTMLElement[]).filter((each) =>
            each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0 ||
            each.matches(".buttons *") && each.offsetHeight > 44
          ).map((each) => `${path}: ${each.textContent}`),
        path,
      ),
    );
    await page.close();
  }
  assert.deepEqual(wrong, []);
}, { context: { viewport: { width: 390, height: 800 } } });

/** Every page, with a text that it shows when its data is there. */
async function somePages({ service }: Opened): Promise<[path: string, text: string][]> {
  const { engine } = service;
  await engine.start();
  const waiting = await engine.jobs.importCsv.trigger({ file: "prices.csv", rows: 5 }, { labels: { org: "acme" } });
  const failed = await engine.jobs.fail.trigger({ order: 1 });
  await untilStatus(service, waiting.id, "waiting");
  await untilStatus(service, failed.id, "failed");
  await engine.pauseJob("resize", { by: "ana", note: "too slow" });
  await engine.jobs.quick.trigger({ n: 1 });
  const asked = await engine.jobs.askPrice.trigger({ product: "lamp" });
  await untilStatus(service, asked.id, "waiting");
  const chat = await engine.jobs.chat.trigger({ room: "7" });
  await engine.jobs.chat.send(chat.id, "text", { text: "hello" }, { by: "ana" });
  const order = await engine.jobs.order.trigger({ order: 7 });
  await untilStatus(service, order.id, "waiting");
  await engine.cancel(order.id);
  const writing = await engine.jobs.write.trigger({ items: 3 });
  const parentId = await heldFilm(service, { clips: 12, unlicensed: 2 });
  const group = new URLSearchParams({ jobName: "charge-card", status: "failed", error: "HTTP # for order #" });
  return [
    ["", "Failures by error"],
    ["runs", "20 runs"],
    [`runs/${chat.id}`, "1 unread"],
    [`runs/${order.id}`, "undo charge"],
    [`runs/${writing.id}`, "token 3"],
    ["runs?held=true", "2 runs"],
    [`runs?${group}`, "Retry this one"],
    [`runs/${parentId}`, "Resume all 2 held"],
    [`runs/${asked.id}`, "sizes"],
    [`runs/${waiting.id}`, "approved: yes"],
    [`runs/${failed.id}`, "HTTP 402"],
    ["waits", "import-csv"],
    ["jobs", "paused by ana"],
    ["jobs/import-csv", "Trigger a run"],
    ["schedules", "Trigger now"],
    ["workers", "web-1"],
    ["more", "Schedules"],
  ];
}

/** Opens what is folded, and selects a row. */
async function openParts(page: Page): Promise<void> {
  for (const name of [/validate/, /^review$/, /Stack/]) {
    const part = page.locator("main").getByRole("button", { name }).or(
      page.locator("summary").filter({ hasText: name }),
    );
    if (await part.count() > 0) await part.first().click();
  }
  const row = page.getByRole("checkbox", { name: /Select run/ });
  if (await row.count() > 0) await row.first().check();
  await page.waitForTimeout(200); // until what was opened is there
}

async function examine(page: Page): Promise<string[]> {
  await page.addScriptTag({ content: axe.source });
  const { violations } = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(options: object): Promise<unknown> } };
    return await axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
  }) as { violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[] };
  return violations.flatMap(({ id, nodes }) =>
    nodes.slice(0, 4).map((node) => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary?.slice(0, 250)}`)
  );
}
