import assert from "node:assert/strict";
import type { HandlerAuth } from "@holdfast/jobs";
import { uiTest } from "./support/browser.ts";

const hooks = {
  onOperate: () => {},
  onTrigger: () => {},
  onRunAccess: () => {},
  scopeRuns: (_: unknown, filter: object) => filter,
};

/** Admits a request with this header. */
function requiring(name: string, value: string, headers: Record<string, string> = {}): HandlerAuth<unknown> {
  return {
    ...hooks,
    authenticate: (request) => {
      if (!request.headers.get(name)?.includes(value)) throw new Response(null, { status: 401, headers });
    },
  };
}

const showRuns = async ({ service, open }: Parameters<Parameters<typeof uiTest>[1]>[0]) => {
  await service.engine.jobs.quick.trigger({ n: 1 });
  const page = await open("runs");
  await page.getByText("1 run", { exact: true }).waitFor();
  await service.engine.jobs.quick.trigger({ n: 2 }); // by the stream: the list is read every 15 s otherwise
  await page.getByText("2 runs", { exact: true }).waitFor({ timeout: 10_000 });
};

uiTest("the dashboard works at an address without a slash at its end", async ({ service, open }) => {
  await service.engine.jobs.quick.trigger({ n: 1 });
  const page = await open();

  await page.goto(`${service.url.replace(/\/$/, "")}#/runs`);

  await page.getByText("1 run", { exact: true }).waitFor();
});

uiTest("the dashboard works under a deep prefix", showRuns, { service: { basePath: "/a/b" } });

uiTest("the dashboard works behind a proxy that strips a prefix", showRuns, {
  service: { basePath: "/jobs", strippedPrefix: "/outer/path" },
});

uiTest("the dashboard works with Basic credentials", showRuns, {
  service: { handler: { auth: requiring("authorization", "Basic ", { "www-authenticate": "Basic" }) } },
  context: { httpCredentials: { username: "ana", password: "secret" } },
  expectedErrors: /401/,
});

uiTest("the dashboard works with a cookie", async (opened) => {
  await opened.context.addCookies([{ name: "session", value: "good", url: new URL("/", opened.service.url).href }]);
  await showRuns(opened);
}, { service: { handler: { auth: requiring("cookie", "session=good") } } });

uiTest("the dashboard asks for a bearer token when its files alone are open", async ({ service, open }) => {
  await service.engine.jobs.quick.trigger({ n: 1 });
  const page = await open("runs");

  const refusals = await page.getByRole("alert").count();
  await page.getByLabel("Bearer token").fill("bad");
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByRole("alert").getByText("The server refused this token").waitFor();
  await page.getByLabel("Bearer token").fill("good\u200b");
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByRole("alert").getByText("a character that cannot be sent").waitFor();
  await page.getByLabel("Bearer token").fill("good");
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByText("1 run", { exact: true }).waitFor();
  await service.engine.jobs.quick.trigger({ n: 2 });
  await page.getByText("2 runs", { exact: true }).waitFor({ timeout: 10_000 });

  assert.equal(refusals, 0);
  assert.equal(await page.evaluate(() => sessionStorage.length + localStorage.length), 0);
}, {
  service: { handler: { auth: { ...requiring("authorization", "Bearer good"), open: ["ui"] } } },
  expectedErrors: /401/,
});

uiTest("the dashboard counts the waits that its user may see", async ({ service, open }) => {
  await service.engine.start();
  await service.engine.jobs.quick.trigger({ n: 1 }); // an empty store has no counts
  const waits = () => service.engine.getOpenWaits().then((page) => page.waits.length);
  const page = await open();
  const tile = page.getByRole("region", { name: "Counts" });
  const badge = page.getByRole("navigation", { name: "Pages", exact: true }).locator(".badge");

  await tile.getByText("0 for a signal").waitFor();
  const before = await badge.count();
  await service.engine.jobs.importCsv.trigger({ file: "a.csv", rows: 5 });
  while (await waits() === 0) await page.waitForTimeout(25);
  await page.reload();
  await tile.getByText("1 for a signal").waitFor();
  await badge.getByText("open").waitFor();

  assert.equal(before, 0);
  assert.deepEqual(await badge.allTextContents(), ["1 open"]);
}, { service: { handler: { auth: requiring("accept", "") } } });

uiTest("sections whose routes are refused are left out", async ({ open }) => {
  const page = await open();

  await page.getByRole("heading", { name: "Jobs" }).waitFor();

  assert.equal(await page.getByRole("heading", { name: "Workers" }).count(), 0);
}, {
  service: {
    handler: {
      auth: {
        authenticate: () => "ana",
        ...hooks,
        onOperate: (_, { operation }) => {
          if (operation === "workers") throw new Response(null, { status: 403 });
        },
      },
    },
  },
  expectedErrors: /403/,
});
