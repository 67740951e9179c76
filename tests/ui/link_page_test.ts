import assert from "node:assert/strict";
import axe from "axe-core";
import { type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { z } from "zod";
import { createEngine, createHandler, defineJob, type Engine, MemoryStore } from "@holdfast/jobs";
import { signedLinks } from "@holdfast/jobs/links";
import { CERTIFICATE } from "../browser/test_certificate.ts";
import { findChromium } from "../browser/find_chromium.ts";

const executablePath = findChromium();

const ANSWER = z.object({
  approved: z.boolean(),
  cents: z.int().max(10_000).meta({ description: "In euro cents" }),
  reason: z.enum(["damaged", "late"]).optional(),
  note: z.string().max(200).optional(),
});
const ACTIONS = [{ label: "Refund", payload: "refunded" }, {
  label: "Refuse, and say why in a mail",
  payload: "refused",
}];
const MARKUP = '<script>alert("x")</script><img src=x onerror=alert(1)>';

/** A service behind a server, and a browser. */
interface Opened {
  engine: Engine;
  /** Triggers a run of a job that asks, and opens the link that it sends. */
  open(job: "form" | "buttons"): Promise<{ page: Page; id: string; link: string }>;
}

/** Tests the page in a browser. It fails if the page has an error, reads anything else, or violates its policy. */
function linkTest(
  name: string,
  body: (opened: Opened) => Promise<void>,
  { isSecure = false, ...options }: BrowserContextOptions & { isSecure?: boolean } = {},
): void {
  Deno.test(name, { ignore: executablePath === null }, async () => {
    const sent: string[] = [];
    let handle: (request: Request) => Response | Promise<Response> = () => new Response();
    const listen = { port: 0, hostname: "127.0.0.1", onListen: () => {}, ...(isSecure ? CERTIFICATE : {}) };
    const server = Deno.serve(listen, (request) => handle(request));
    const origin = `${isSecure ? "https" : "http"}://127.0.0.1:${server.addr.port}`;
    const links = signedLinks({ keys: ["a key of links for the browser tests"], url: `${origin}/api/jobs` });
    const input = z.object({});
    const metadata = { message: `Refund order 7? ${MARKUP}`, amount: "12 EUR", [MARKUP]: MARKUP, urgent: true };
    const form = defineJob({
      name: "form",
      input,
      waits: { approve: ANSWER },
      async run(step) {
        const wait = await step.prepareWait("approve", { timeout: 60_000, metadata });
        await step.run("ask", async () => void sent.push(await links.toWait(wait, { for: "ada" })));
        return await step.waitFor(wait);
      },
    });
    const buttons = defineJob({
      name: "buttons",
      input,
      async run(step) {
        const wait = await step.prepareWait("approve", {
          timeout: 60_000,
          metadata: { ...metadata, actions: ACTIONS },
        });
        await step.run("ask", async () => void sent.push(await links.toWait(wait, { for: "ada" })));
        return await step.waitFor(wait);
      },
    });
    await using engine = createEngine({ store: new MemoryStore(), jobs: { form, buttons }, logger: null });
    handle = createHandler(engine, { basePath: "/api/jobs", links }).fetch;
    const browser = await chromium.launch({ executablePath: executablePath! });
    const problems: string[] = [];
    try {
      const context = await browser.newContext({
        locale: "en",
        timezoneId: "UTC",
        ignoreHTTPSErrors: isSecure, // the certificate signs itself
        ...options,
      });
      context.setDefaultTimeout(20_000);
      context.on("request", (request) => {
        const { origin: asked, pathname } = new URL(request.url());
        if (asked !== origin || !["/api/jobs/link", "/favicon.ico"].includes(pathname)) problems.push(request.url());
      });
      await body({
        engine: engine as Engine,
        async open(job) {
          const { id } = await engine.jobs[job].trigger({});
          await engine.runUntilIdle();
          const link = sent.at(-1)!;
          const page = await context.newPage();
          page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
          page.on("console", (message) => {
            // A page whose status says what happened is an error to the console.
            if (message.type() === "error" && !/status of 4\d\d/.test(message.text())) problems.push(message.text());
          });
          await page.goto(link);
          return { page, id, link };
        },
      });
    } finally {
      await browser.close();
      await server.shutdown();
    }
    assert.deepEqual(problems, []);
  });
}

async function answerOf(engine: Engine, id: string) {
  const [wait] = await engine.getWaits(id);
  return { status: wait!.status, payload: wait!.payload, by: wait!.signalledBy };
}

async function findings(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: typeof axe }).axe.run());
  return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}

for (const javaScriptEnabled of [true, false]) {
  const how = javaScriptEnabled ? "" : ", without JavaScript";
  linkTest(`a link is answered by a button${how}; a reload and back change nothing`, async ({ engine, open }) => {
    const { page, id, link } = await open("buttons");
    assert.equal(await page.getByRole("heading").textContent(), `Refund order 7? ${MARKUP}`);

    await page.getByRole("button", { name: "Refuse" }).click();
    await page.getByRole("heading", { name: "Thank you" }).waitFor();
    assert.equal(page.url(), link);
    await page.reload();
    await page.getByRole("heading", { name: "Thank you" }).waitFor();
    await page.goBack().catch(() => null);
    await page.goto(link);
    await page.getByRole("heading", { name: "Thank you" }).waitFor();

    assert.deepEqual(await answerOf(engine, id), { status: "resolved", payload: "refused", by: "ada" });
  }, { javaScriptEnabled });

  linkTest(`a link is answered by a form${how}; a wrong field is said there, and the rest is kept`, async (opened) => {
    const { page, id } = await opened.open("form");

    await page.getByLabel("Yes").check();
    await page.getByLabel("cents").fill("20000");
    await page.getByLabel("reason").selectOption("late");
    await page.getByLabel("note").fill("Sorry\nfor that");
    await page.getByRole("button", { name: "Send" }).click();
    const alert = page.getByRole("alert");
    await alert.waitFor();
    assert.match((await alert.textContent())!, /10000/);
    assert.equal(await page.getByLabel("cents").getAttribute("aria-invalid"), "true");
    assert.equal(await page.getByLabel("Yes").isChecked(), true);
    assert.equal(await page.getByLabel("note").inputValue(), "Sorry\nfor that");
    await page.getByLabel("cents").fill("1200");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("heading", { name: "Thank you" }).waitFor();

    const payload = { approved: true, cents: 1200, reason: "late", note: "Sorry\nfor that" };
    assert.deepEqual(await answerOf(opened.engine, id), { status: "resolved", payload, by: "ada" });
  }, { javaScriptEnabled });
}

linkTest("a link is answered over https, by a button and by a form", async ({ engine, open }) => {
  const buttons = await open("buttons");
  await buttons.page.getByRole("button", { name: "Refund" }).click();
  await buttons.page.getByRole("heading", { name: "Thank you" }).waitFor();
  const form = await open("form");
  await form.page.getByLabel("No", { exact: true }).check();
  await form.page.getByLabel("cents").fill("1");
  await form.page.getByRole("button", { name: "Send" }).click();
  await form.page.getByRole("heading", { name: "Thank you" }).waitFor();

  assert.match(form.link, /^https:/);
  assert.deepEqual(await answerOf(engine, buttons.id), { status: "resolved", payload: "refunded", by: "ada" });
  assert.deepEqual((await answerOf(engine, form.id)).payload, { approved: false, cents: 1 });
}, { isSecure: true });

linkTest("the browser asks for what is required before anything is sent", async ({ engine, open }) => {
  const { page, id } = await open("form");

  await page.getByRole("button", { name: "Send" }).click();

  assert.equal(await page.getByLabel("Yes").evaluate((input: HTMLInputElement) => input.validity.valueMissing), true);
  assert.equal((await answerOf(engine, id)).status, "pending");
});

for (const colorScheme of ["light", "dark"] as const) {
  for (const width of [320, 1280]) {
    linkTest(
      `axe-core finds nothing, and no page scrolls sideways, ${colorScheme}, ${width} px wide`,
      async ({ open }) => {
        for (const job of ["form", "buttons"] as const) {
          const { page } = await open(job);
          const look = async () => {
            assert.deepEqual(await findings(page), []);
            assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width);
          };
          await look();
          if (job === "form") {
            await page.getByLabel("No", { exact: true }).check();
            await page.getByLabel("cents").fill("x");
            await page.getByRole("button", { name: "Send" }).click();
            await page.getByRole("alert").waitFor();
            await look();
            await page.getByLabel("cents").fill("1");
            await page.getByRole("button", { name: "Send" }).click();
          } else await page.getByRole("button", { name: "Refund" }).click();
          await page.getByRole("heading", { name: "Thank you" }).waitFor();
          await look();
        }
      },
      { colorScheme, viewport: { width, height: 700 }, bypassCSP: true },
    );
  }
}
