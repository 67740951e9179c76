import assert from "node:assert/strict";
import { services } from "./support/demo_service.ts";
import { uiTest, untilStatus } from "./support/browser.ts";
import { heldFilm } from "./support/held_film.ts";

uiTest("the run page follows a run over its signal to its end", async ({ service, open }) => {
  const { engine } = service;
  const { id } = await engine.jobs.importCsv.trigger({ file: "prices.csv", rows: 48_112 }, { labels: { org: "acme" } });
  const page = await open(`runs/${id}`);
  await page.locator(".banner .what").getByText("No worker is live").waitFor();

  await engine.start();
  await page.getByText("Waiting for a signal to “review”").waitFor();
  await page.locator(".tl").getByRole("button", { name: /^review/ }).waitFor();
  const names = await page.locator(".tl .name").allTextContents();
  await page.getByRole("button", { name: /validate/ }).click();
  const attempts = await page.locator(".attempts .word").allTextContents();
  await page.getByLabel("note").fill("looks fine");
  await page.getByRole("button", { name: "approved: yes" }).click();
  await page.locator(".title").getByText("Completed").waitFor();

  const [wait] = await engine.getWaits(id);
  await page.getByRole("group", { name: "Log lines of validate" }).getByText("The exchange rates are late").nth(1)
    .waitFor();
  await page.getByRole("button", { name: /^download/ }).click();
  const result = await page.getByRole("region", { name: "Result of download" }).textContent();
  assert.deepEqual(JSON.parse(result!), { saved: "prices.csv" });
  assert.deepEqual(names, ["Queued", "download", "validate", "review"]);
  assert.deepEqual(attempts, ["attempt 1", "delay before the next attempt", "attempt 2"]);
  assert.deepEqual(wait?.payload, { note: "looks fine", approved: true });
  await page.getByRole("button", { name: /^write/ }).waitFor();
  await page.getByRole("region", { name: "Output", exact: true }).last().getByText("48112").waitFor();
  assert.equal(await page.locator(".logs li").count(), 3);
});

uiTest("the run page retries from the failure, by the keyboard alone", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.fail.trigger({ order: 7 });
  await untilStatus(service, id, "failed");
  const page = await open(`runs/${id}`);
  await page.getByText("The step “charge” failed after 2 attempts").waitFor();
  await page.getByText("Error: HTTP 402 for order 7", { exact: true }).waitFor();

  services.areUp = true;
  const retry = page.getByRole("button", { name: "Retrigger from the failure" });
  for (let n = 0; n < 30 && !await retry.evaluate((element) => element === document.activeElement); n++) {
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await page.locator(".title").getByText("Completed").waitFor();

  const newId = decodeURIComponent(new URL(page.url()).hash.split("/")[2]!);
  assert.notEqual(newId, id);
  assert.equal((await engine.getRun(newId))?.retriggerOf, id);
});

uiTest("the run page cancels and deletes after a question", async ({ service, open }) => {
  const { engine } = service;
  const { id } = await engine.jobs.quick.trigger({ n: 1 });
  const page = await open(`runs/${id}`);

  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByRole("heading", { name: "Cancel this run?" }).waitFor();
  await page.keyboard.press("Escape");
  const statusAfterEscape = (await engine.getRun(id))?.status;
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByRole("button", { name: "Cancel the run" }).click();
  await page.locator(".title").getByText("Cancelled").waitFor();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Delete the run" }).click();
  await page.getByRole("heading", { name: "Runs", exact: true }).waitFor();

  assert.equal(statusAfterEscape, "pending");
  assert.equal(await engine.getRun(id), null);
}, { expectedErrors: /404/ }); // a read of the run can be under way while it is deleted

uiTest("a tab that signals a wait too late shows why it was refused", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.importCsv.trigger({ file: "a.csv", rows: 1 });
  await untilStatus(service, id, "waiting");
  const [one, other] = [await open(`runs/${id}`), await open(`runs/${id}`)];
  for (const page of [one, other]) await page.getByRole("button", { name: "approved: yes" }).waitFor();
  await other.route(/(run|waits|explain)\?runId/, (route) => route.abort()); // so that it keeps its form

  await one.getByRole("button", { name: "approved: yes" }).click();
  await one.locator(".title").getByText("Completed").waitFor();
  const answer = other.waitForResponse((response) => response.url().includes("/signal"));
  await other.getByRole("button", { name: "approved: no" }).click();
  const status = (await answer).status();
  await other.getByRole("alert").waitFor();

  const [wait] = await engine.getWaits(id);
  assert.equal(status, 409);
  assert.deepEqual(wait?.payload, { approved: true });
}, { expectedErrors: /409|ERR_FAILED/ });

for (const where of ["the run page", "the page of waits"]) {
  uiTest(`${where} says that an answer came too late when its form has gone`, async ({ service, open, context }) => {
    const { engine } = service;
    await engine.start();
    const { id } = await engine.jobs.importCsv.trigger({ file: "a.csv", rows: 1 });
    await untilStatus(service, id, "waiting");
    const [wait] = await engine.getWaits(id);
    await context.route(/\/signal\?/, async (route) => {
      await engine.signal(wait!.id, { signalId: "faster", payload: { approved: true } });
      await route.continue();
    });
    const page = await open(where === "the run page" ? `runs/${id}` : "waits");
    if (where !== "the run page") await page.getByRole("button", { name: "review" }).click();

    await page.getByRole("button", { name: "approved: no" }).click();
    await page.getByRole("button", { name: "approved: no" }).waitFor({ state: "detached" });

    await page.getByRole("alert").getByText("another signal came first").waitFor();
  }, { expectedErrors: /409/ });
}

uiTest("the run page shows markup in any value as text", async ({ service, open }) => {
  const markup = `<img src=x onerror="document.title='hacked'"><script>document.title='hacked'</script>`;
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.importCsv.trigger({ file: markup, rows: 1 }, { labels: { org: markup } });
  await untilStatus(service, id, "waiting");
  const page = await open(`runs/${id}`);

  await page.getByRole("button", { name: "approved: no" }).click();
  await page.locator(".banner .msg").getByText(`Error: ${markup} was rejected`).waitFor();
  await page.getByText(`Importing ${markup}`).waitFor();
  await page.getByRole("button", { name: /^download/ }).click();
  await page.getByRole("region", { name: "Result of download" }).getByText("onerror").first().waitFor();

  assert.equal(await page.locator("img, main script").count(), 0);
  assert.notEqual(await page.title(), "hacked");
  assert.equal(await page.locator(".facts .chip").textContent(), `org=${markup}`);
});

uiTest("a deep and large output is cut before it is shown", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.deepResult.trigger({ levels: 900 });
  await untilStatus(service, id, "completed");
  const page = await open(`runs/${id}`);

  await page.getByText("64 levels deep").waitFor();

  const text = await page.getByRole("region", { name: "Output as JSON" }).textContent();
  assert.ok(text!.length < 10_000, `${text!.length} characters`);
  await page.getByRole("heading", { name: "Timeline" }).waitFor();
});

uiTest("a part of a page that cannot be shown leaves the others", async ({ service, open, context }) => {
  const { engine } = service;
  const { id } = await engine.jobs.quick.trigger({ n: 1 });
  await engine.runUntilIdle();
  await context.route(/timeline\?/, (route) => route.fulfill({ json: { rows: [{ kind: "step" }], total: 1 } }));
  const page = await open(`runs/${id}`);

  await page.getByText("This part could not be shown").waitFor();

  await page.getByRole("region", { name: "Output", exact: true }).first().waitFor();
  assert.equal(await page.getByText("This part could not be shown").count(), 1);
}, { expectedErrors: /console/ });

uiTest("counts beside the links that cannot be shown leave the page", async ({ service, open, context }) => {
  await service.engine.jobs.quick.trigger({ n: 1 });
  await context.route(/\/workers$/, (route) => route.fulfill({ json: { workers: 1 } }));
  await context.route(/waits\/open/, (route) => route.fulfill({ json: { waits: [], next: null, total: {} } }));
  const page = await open("runs");

  await page.getByText("1 run", { exact: true }).waitFor();
  await page.getByRole("navigation", { name: "Pages", exact: true }).getByRole("link", { name: "Jobs" }).click();

  await page.getByRole("heading", { name: "Jobs" }).waitFor();
}, { expectedErrors: /console/ });

uiTest("a part of the list of runs that cannot be shown leaves the others", async ({ service, open, context }) => {
  await service.engine.jobs.quick.trigger({ n: 1 });
  await context.route(
    /\/runs\?/,
    (route) => route.fulfill({ json: { runs: [{ id: "x" }], total: 1, hasMore: false } }),
  );
  const page = await open("runs");

  await page.getByText("This part could not be shown").waitFor();

  await page.getByRole("search").waitFor();
}, { expectedErrors: /console/ });

uiTest("a step that failed before its last attempt says how many it had left", async ({ service, open, context }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.fail.trigger({ order: 7 });
  await untilStatus(service, id, "failed");
  const failure = { kind: "error", name: "Error", message: "refused", stack: null, cause: null, maxAttempts: 3 };
  const steps = [{ name: "charge", attempt: 2, failure }];
  await context.route(/failure\?/, (route) => route.fulfill({ json: { run: failure, steps, details: {} } }));

  const page = await open(`runs/${id}`);

  await page.getByText("The step “charge” failed after 2 of 3 attempts").waitFor();
});

uiTest("a run that was held is not said to have been interrupted", async ({ service, open }) => {
  const parentId = await heldFilm(service, { clips: 1, unlicensed: 1 });
  const { children: [clip] } = await service.engine.getChildren(parentId);

  const page = await open(`runs/${clip!.id}`);

  await page.getByText("could not go on with the code that it has").waitFor();
  assert.match((await page.locator(".facts").first().textContent())!, /Active time.*of recorded steps/);
});

uiTest("a retry shows what it has copied before what it has done", async ({ service, open }) => {
  const { engine } = service;
  await engine.start();
  const { id } = await engine.jobs.fail.trigger({ order: 7 });
  await untilStatus(service, id, "failed");
  const { id: retry } = await engine.retrigger(id, { from: "failure" });
  await untilStatus(service, retry, "failed");
  const page = await open(`runs/${retry}`);

  await page.locator(".tl").getByRole("button", { name: /^charge/ }).waitFor();

  assert.deepEqual(await page.locator(".tl .name").allTextContents(), ["reserve", "Queued", "charge"]);
  assert.equal(await page.locator(".tl li.copied").count(), 1);
  await page.locator(".tl .copied").getByText("copied").waitFor();
});

uiTest("the panel of logs says whether lines are kept", async ({ service, open }) => {
  const { engine } = service;
  const { id } = await engine.jobs.quick.trigger({ n: 1 });
  const page = await open(`runs/${id}`);

  await page.getByText("The run has written no lines").waitFor();

  assert.equal(await page.getByText("persistLogs").count(), 0);
});

uiTest("a run shows its deadline, its keys, and which execution it is in", async ({ service, open }) => {
  const { engine } = service;
  const { id } = await engine.jobs.importCsv.trigger({ file: "a.csv", rows: 1 }, {
    finishWithin: 3_600_000,
    idempotencyKey: "a.csv",
    concurrencyKey: "acme",
  });
  await engine.start();
  await untilStatus(service, id, "waiting");
  const page = await open(`runs/${id}`);

  const facts = page.locator(".facts");
  await facts.getByText("Deadline").waitFor();
  await facts.getByText("Concurrency key").waitFor();
  const words = (await facts.textContent())!;
  assert.match(words, /Idempotency keya\.csv.*Concurrency keyacme/s);
  await page.getByRole("button", { name: "approved: yes" }).click();
  await page.locator(".title").getByText("Completed").waitFor();
  await facts.getByText(/^number \d+$/).waitFor();
});
