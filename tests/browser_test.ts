import assert from "node:assert/strict";
import { type BrowserContext, chromium, type Page } from "playwright-core";
import { findChromium } from "./browser/find_chromium.ts";
import { LiveServer } from "./browser/live_server.ts";

const executablePath = findChromium();
if (executablePath === null) {
  console.log("The tests of the live page are skipped: no Chromium was found (CHROMIUM_PATH says where one is)");
}

/** Tests the page in a browser, on a database that is still to be made. */
function test(name: string, body: (context: BrowserContext, database: string) => Promise<void>): void {
  Deno.test(name, { ignore: executablePath === null }, async () => {
    const folder = await Deno.makeTempDir();
    const browser = await chromium.launch({ executablePath: executablePath! });
    try {
      await body(await browser.newContext({ locale: "en" }), `${folder}/live.db`);
    } finally {
      await browser.close();
      await Deno.remove(folder, { recursive: true });
    }
  });
}

test("the live page shows a run up to its result, also to who comes in the middle", async (context, database) => {
  await using server = new LiveServer(database);
  const page = await open(context, await server.listens());

  await trigger(page, { rows: 150 });
  await page.getByRole("button", { name: "Approve" }).waitFor();
  const progressHalfway = await textOf(page, "#count");
  const other = await open(context, page.url());
  await other.getByRole("button", { name: "Approve" }).waitFor();
  const namesHalfway = await Promise.all([stepNames(page), stepNames(other)]);
  await other.getByRole("button", { name: "Approve" }).click();
  for (const each of [page, other]) await each.getByRole("heading", { name: "Completed" }).waitFor();

  const names = ["read", "check", "review", "write 1–100", "write 101–150"];
  assert.equal(progressHalfway, "2 of 4");
  assert.deepEqual(namesHalfway, [names.slice(0, 3), names.slice(0, 3)]);
  for (const each of [page, other]) {
    assert.equal(await textOf(each, "#count"), "4 of 4");
    assert.deepEqual(await stepNames(each), names);
    assert.equal(await textOf(each, "#result dl"), "fileprices.csvrows150");
    assert.deepEqual(await each.locator("#logs .message").allTextContents(), [
      "Importing prices.csv",
      "3 prices changed by more than half",
      "Imported prices.csv",
    ]);
    assert.equal(await textOf(each, "#runs .status"), "completed");
  }
});

test("the live page finds a killed server again, and what it has missed", async (context, database) => {
  await using first = new LiveServer(database);
  const url = await first.listens();
  const page = await open(context, url);
  await trigger(page, { rows: 100 });
  await page.getByRole("button", { name: "Approve" }).waitFor();

  await first.kill();
  await page.getByText("Reconnecting").waitFor();
  await using second = new LiveServer(database, new URL(url).port);
  await second.listens();
  await approve(url, new URL(page.url()).hash.slice(1)); // most likely before the page is back
  await page.getByRole("heading", { name: "Completed" }).waitFor();
  await page.getByText("Live", { exact: true }).waitFor();

  assert.deepEqual(await stepNames(page), ["read", "check", "review", "write 1–100"]);
  assert.equal(await page.getByRole("button", { name: "Approve" }).count(), 0);
});

test("the live page shows markup as text", async (context, database) => {
  const markup = `<img src="x" onerror="document.body.remove()">`;
  await using server = new LiveServer(database);
  await context.route("**/api/jobs/run?*", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), jobName: markup } });
  });
  const page = await open(context, await server.listens());

  await trigger(page, { file: markup, rows: 100 });
  await page.getByRole("button", { name: "Reject" }).click();
  await page.getByRole("heading", { name: "Failed" }).waitFor();

  assert.equal(await textOf(page, "#job"), `${markup} · ${markup}`);
  assert.equal(await textOf(page, "#logs p:first-child .message"), `Importing ${markup}`);
  assert.equal(await textOf(page, "#runs .labels"), markup);
  assert.equal(await page.locator("img").count(), 0);
});

async function open(context: BrowserContext, url: string): Promise<Page> {
  const page = await context.newPage();
  page.on("pageerror", (error) => assert.fail(error));
  await page.goto(url);
  await page.getByText("Live", { exact: true }).waitFor();
  return page;
}

async function trigger(page: Page, { file = "prices.csv", rows }: { file?: string; rows: number }): Promise<void> {
  await page.getByLabel("File").fill(file);
  await page.getByLabel("Rows").fill(String(rows));
  await page.getByRole("button", { name: "Start an import" }).click();
}

async function stepNames(page: Page): Promise<string[]> {
  return await page.locator("#story .name").allTextContents();
}

async function textOf(page: Page, selector: string): Promise<string | null> {
  return await page.locator(selector).textContent();
}

/** Answers the wait of a run without the page. */
async function approve(url: string, runId: string): Promise<void> {
  const api = `${url}api/jobs`;
  const [wait] = await (await fetch(`${api}/waits?runId=${runId}`)).json();
  const body = JSON.stringify({ signalId: "elsewhere", payload: { approved: true } });
  const response = await fetch(`${api}/signal?runId=${runId}&waitId=${wait.id}`, { method: "POST", body });
  assert.equal((await response.json()).disposition, "accepted");
}
