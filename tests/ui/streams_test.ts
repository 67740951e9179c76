import assert from "node:assert/strict";
import { uiTest, untilStatus } from "./support/browser.ts";
import { services } from "./support/demo_service.ts";

uiTest(
  "the page of a run shows its streams as they grow, and what an attempt that was replaced wrote",
  async (opened) => {
    const { service, open } = opened;
    const { engine } = service;
    await engine.start();
    const { id } = await engine.jobs.write.trigger({ items: 3 });
    const page = await open(`runs/${id}`);
    const panel = page.getByRole("region", { name: "Streams" });
    const items = panel.getByRole("region", { name: "Items of tokens", exact: true });

    await items.getByText("attempt 1, token 3.").waitFor();
    const first = await items.textContent();
    await panel.getByText("Open", { exact: true }).waitFor();
    services.fails.resolve();
    await items.getByText("attempt 2, token 3.").waitFor();
    const second = await items.textContent();
    await panel.getByText("Replaced: items 1 to 3").waitFor();
    const replaced = await panel.getByRole("region", { name: "Replaced items of tokens" }).textContent();
    await page.locator(".title").getByText("Completed").waitFor();
    await panel.getByText("2 streams").waitFor();
    await panel.getByRole("button", { name: "rows", exact: true }).click();
    const row = panel.getByRole("region", { name: "Items of rows" });
    await row.getByText("xxx").waitFor();

    const written = (attempt: number) => [1, 2, 3].map((n) => `attempt ${attempt}, token ${n}. `).join("");
    assert.deepEqual([first, second, replaced], [written(1), written(2), written(1)]);
    assert.ok((await row.textContent())!.length < 3_000);
  },
);

uiTest("a stream shows its newest 200 items, and goes on where it was cut", async ({ service, open, context }) => {
  const { engine } = service;
  await engine.start();
  const asked: string[] = [];
  context.on("request", (request) => {
    if (new URL(request.url()).pathname.endsWith("/stream")) asked.push(request.headers()["last-event-id"] ?? "");
  });
  const { id } = await engine.jobs.write.trigger({ items: 500 });
  const page = await open(`runs/${id}`);
  const panel = page.getByRole("region", { name: "Streams" });
  const items = panel.getByRole("region", { name: "Items of tokens", exact: true });

  await items.getByText("attempt 1, token 500.").waitFor();
  const tokens = (await items.textContent())!.split(". ").length - 1;
  await panel.getByText("The newest 200 of 500 items").waitFor();
  await service.whileDown(async () => {
    await panel.getByText("Reconnecting").waitFor();
    services.fails.resolve();
    await untilStatus(service, id, "completed");
  });
  await items.getByText("attempt 2, token 500.").waitFor();
  await panel.getByText("Replaced: items 1 to 500").waitFor();

  assert.equal(tokens, 200);
  assert.equal((await items.textContent())!.split("token 500.").length, 2);
  assert.match(asked.at(-1)!, /^\d{16}-/);
}, { expectedErrors: /ERR_/ });
