// deno task picture    makes the pictures of the run page in docs/images from a real run

import { chromium } from "playwright-core";
import { findChromium } from "../browser/find_chromium.ts";
import { untilStatus } from "./support/browser.ts";
import { DemoService } from "./support/demo_service.ts";

const FOLDER = new URL("../../docs/images/", import.meta.url);
const MAX_BYTES = 150_000;

const executablePath = findChromium();
if (executablePath === null) throw new Error("No Chromium was found (CHROMIUM_PATH says where one is)");
await using service = await DemoService.start();
await service.engine.start();
const { id } = await service.engine.jobs.importCsv.trigger({ file: "prices.csv", rows: 48_112 }, {
  labels: { org: "acme" },
});
await untilStatus(service, id, "waiting");
const browser = await chromium.launch({ executablePath });
await Deno.mkdir(FOLDER, { recursive: true });
for (const colorScheme of ["light", "dark"] as const) {
  const page = await browser.newPage({ colorScheme, viewport: { width: 1_280, height: 900 }, locale: "en" });
  await page.goto(`${service.url}#/runs/${id}`);
  await page.getByRole("button", { name: "approved: yes" }).waitFor();
  await page.getByRole("button", { name: /^validate/ }).click();
  await page.getByRole("group", { name: "Log lines of validate" }).waitFor();
  const picture = await page.screenshot({ animations: "disabled" });
  if (picture.length > MAX_BYTES) throw new Error(`The picture has ${picture.length} bytes, more than ${MAX_BYTES}`);
  await Deno.writeFile(new URL(`run-${colorScheme}.png`, FOLDER), picture);
}
await browser.close();
