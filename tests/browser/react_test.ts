import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { browserTest } from "./browser_tests.ts";

async function publish(page: Page, title: string): Promise<void> {
  await page.getByLabel("Title").fill(title);
  await page.getByRole("button", { name: "Publish" }).click();
}

browserTest("useRun() shows a run with its progress, its wait and its output", async ({ open, start }) => {
  const page = await open((await start()).url);

  await publish(page, "Emma");
  await page.getByRole("progressbar").waitFor();
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByRole("heading", { name: "Emma: completed" }).waitFor();

  const link = page.getByRole("link", { name: "4 pages" });
  assert.equal(await link.getAttribute("href"), "/books/Emma");
  assert.equal(await page.getByRole("button", { name: "Approve" }).count(), 0);
});

browserTest("useRun() shows why a run has failed", async ({ open, start }) => {
  const page = await open((await start()).url);

  await publish(page, "Emma");
  await page.getByRole("button", { name: "Reject" }).click();
  await page.getByRole("heading", { name: "Emma: failed" }).waitFor();

  assert.equal(await page.getByRole("alert").textContent(), '"Emma" was not approved');
});

browserTest("useRun() goes on when the server was killed and started again", async ({ open, start }) => {
  const { url, server } = await start();
  const page = await open(url);
  await publish(page, "Emma");
  await page.getByRole("heading", { name: "Emma: running" }).waitFor();

  await server.kill();
  await start(new URL(url).port);
  await page.getByRole("button", { name: "Approve" }).click();

  await page.getByRole("heading", { name: "Emma: completed" }).waitFor();
});

browserTest("useRun() ends its stream when its component is unmounted", async ({ open, start }) => {
  const page = await open((await start()).url);
  const isStream = (url: string) => new URL(url).pathname.endsWith("/subscribe");
  const streams = new Set<unknown>();
  page.on("request", (request) => isStream(request.url()) && streams.add(request));
  page.on("requestfinished", (request) => void streams.delete(request));
  page.on("requestfailed", (request) => void streams.delete(request));
  await publish(page, "Emma");
  await page.getByRole("button", { name: "Approve" }).waitFor();
  assert.equal(streams.size, 1, "StrictMode mounts twice; the first stream has ended");

  const ended = page.waitForEvent("requestfailed", { predicate: (request) => isStream(request.url()) });
  await page.getByRole("button", { name: "Close" }).click();
  await ended;

  assert.equal(streams.size, 0);
});
