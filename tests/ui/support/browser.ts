import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import { type BrowserContext, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { findChromium } from "../../browser/find_chromium.ts";
import { DemoService } from "./demo_service.ts";

const executablePath = findChromium();
if (executablePath === null) {
  console.log("The tests of the dashboard are skipped: no Chromium was found (CHROMIUM_PATH says where one is)");
}

/** How many times slower than this machine the browser is to be: `HOLDFAST_SLOWDOWN=6` shows what happens on a slow one. */
const SLOWDOWN = Number(Deno.env.get("HOLDFAST_SLOWDOWN") ?? 1);

// A call of Playwright that fails leaves its next attempt waiting for at most half a second, also when the browser is gone.
const LONGEST_RETRY_MS = 500;

type ServiceOptions = Parameters<typeof DemoService.start>[0];

/** A dashboard in a browser. */
export interface Opened {
  /** The service behind it. */
  service: DemoService;
  /** Opens a page of it, such as `runs?status=failed`, in another tab. */
  open(path?: string): Promise<Page>;
  /** The context of all tabs. */
  context: BrowserContext;
}

/**
 * Tests the dashboard in a browser. It fails if any tab has an error, reads anything from elsewhere, or violates the
 * policy of its page.
 */
export function uiTest(
  name: string,
  body: (opened: Opened) => Promise<void>,
  { service: serviceOptions, context: contextOptions, expectedErrors = /^$/ }: {
    service?: ServiceOptions;
    context?: BrowserContextOptions;
    expectedErrors?: RegExp;
  } = {},
): void {
  Deno.test(name, { ignore: executablePath === null }, async () => {
    await using service = await DemoService.start(serviceOptions);
    const browser = await chromium.launch({ executablePath: executablePath! });
    const problems: string[] = [];
    try {
      const context = await browser.newContext({ locale: "en", timezoneId: "UTC", ...contextOptions });
      context.setDefaultTimeout(20_000);
      context.on("request", (request) => {
        if (new URL(request.url()).origin !== new URL(service.url).origin) problems.push(`request: ${request.url()}`);
      });
      const open = async (path = "") => {
        const page = await context.newPage();
        if (SLOWDOWN > 1) {
          const session = await context.newCDPSession(page);
          await session.send("Emulation.setCPUThrottlingRate", { rate: SLOWDOWN });
        }
        page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
        page.on("console", (message) => {
          if (message.type() === "error") problems.push(`console: ${message.text()}`);
        });
        await page.goto(`${service.url}#/${path}`);
        return page;
      };
      await body({ service, open, context });
    } catch (error) {
      await setTimeout(LONGEST_RETRY_MS); // its timer would end in the next test, which would fail, too
      throw error;
    } finally {
      await browser.close();
    }
    assert.deepEqual(problems.filter((problem) => !expectedErrors.test(problem)), []);
  });
}

/** Resolves when a run has this status. */
export async function untilStatus({ engine }: DemoService, runId: string, status: string): Promise<void> {
  for (let n = 0; n < 400; n++) {
    if ((await engine.getRun(runId))?.status === status) return;
    await setTimeout(25);
  }
  assert.fail(`The run was to be ${status}`);
}
