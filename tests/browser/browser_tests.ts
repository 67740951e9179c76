import { type Browser, chromium, type Page } from "playwright-core";
import { findChromium } from "./find_chromium.ts";
import { LiveServer } from "./live_server.ts";

const executablePath = findChromium();
if (executablePath === null) {
  console.log("Tests of the client are skipped: no Chromium was found (CHROMIUM_PATH says where one is)");
}

/** What a test in a browser has. */
export interface InBrowser {
  /** Opens a page in a tab. An error that it throws fails the test. */
  open(url: string): Promise<Page>;
  /** Starts the example on the database of the test. Returns the address of its page. */
  start(port?: string): Promise<{ url: string; server: LiveServer }>;
}

/** Tests the page of an example in Chromium: of `examples/react_server.ts` unless another one is named. */
export function browserTest(
  name: string,
  body: (context: InBrowser) => Promise<void>,
  example = "react_server.ts",
): void {
  Deno.test(name, { ignore: executablePath === null }, async () => {
    await using stack = new AsyncDisposableStack();
    const folder = await Deno.makeTempDir();
    stack.defer(() => Deno.remove(folder, { recursive: true }));
    const browser: Browser = await chromium.launch({ executablePath: executablePath! }); // ignored without one
    const errors: Error[] = [];
    stack.defer(() => browser.close());

    await body({
      async open(url) {
        const page = await (await browser.newContext({ locale: "en" })).newPage();
        page.setDefaultTimeout(60_000); // a client connects again within 30 seconds
        page.on("pageerror", (error) => void errors.push(error));
        await page.goto(url);
        return page;
      },
      async start(port) {
        const server = stack.use(new LiveServer(`${folder}/books.db`, port, example));
        return { url: await server.listens(), server };
      },
    });

    if (errors.length > 0) throw new AggregateError(errors, `The page threw: ${errors[0]!.message}`);
  });
}
