import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { findChromium } from "../browser/find_chromium.ts";
import { callCli } from "../cli/call_cli.ts";
import { aFile, fill } from "../cli/places.ts";
import { getRun } from "../../src/store/reads.ts";

const executablePath = findChromium();

Deno.test("the address of holdfast ui opens the dashboard, which acts on the database", {
  ignore: executablePath === null,
}, async () => {
  await using file = await aFile();
  const { waiting } = await fill(file.store);
  const end = new AbortController();
  const address = Promise.withResolvers<string>();
  const command = callCli(["ui", file.path], { abortSignal: end.signal, onLine: address.resolve });
  const browser = await chromium.launch({ executablePath: executablePath! });
  try {
    const problems: string[] = [];
    const page = await browser.newPage();
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => void (message.type() === "error" && problems.push(message.text())));

    await page.goto(await address.promise);
    await page.waitForURL(/\/ui\/$/);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    await page.goto(`${page.url()}#/runs/${waiting}`);
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await page.getByRole("button", { name: /^Cancel/ }).last().click();
    for (let n = 0; n < 400 && (await getRun(file.store, waiting))!.status !== "cancelled"; n++) {
      await page.waitForTimeout(25);
    }

    assert.equal((await getRun(file.store, waiting))!.status, "cancelled");
    assert.ok(!page.url().includes(new URL(await address.promise).hash.slice(1)), page.url());
    assert.deepEqual(problems, []);
  } finally {
    await browser.close();
    end.abort();
    await command;
  }
});
