// deno run -A examples/approval_by_mail.ts
//
// Refunds an order once somebody without an account has approved it, on a page that a link in a mail leads to. The mail is
// printed. The program opens the link and answers, as a browser does: as a scanner of mails first, which changes
// nothing, then with a wrong amount, and then right.

import { createEngine, createHandler, defineJob, MemoryStore } from "@holdfast/jobs";
import { signedLinks } from "@holdfast/jobs/links";
import { z } from "zod";

const links = signedLinks({
  // In production, from the environment. To replace a key, put the new one in front, and remove the old one later.
  keys: [crypto.randomUUID() + crypto.randomUUID()],
  url: "http://localhost:8000/api/jobs",
});

const Answer = z.object({
  approved: z.boolean(),
  cents: z.int().min(1).max(10_000).optional().meta({ title: "Refund only so many cents" }),
});

const refund = defineJob({
  name: "refund",
  input: z.object({ order: z.string(), cents: z.number() }),
  waits: { approve: Answer },
  async run(step, { order, cents }) {
    const wait = await step.prepareWait("approve", {
      timeout: 7 * 24 * 60 * 60 * 1_000,
      metadata: { message: `Refund order ${order}?`, amount: `${cents / 100} EUR` },
    });
    // A step: a retry of the run does not send the mail again, and the link follows it.
    await step.run("ask", async () => mail("ada@example.com", await links.toWait(wait, { for: "ada@example.com" })));
    const answer = await step.waitFor(wait);
    if (answer.outcome === "timeout" || !answer.payload.approved) return "not refunded";
    const paid = await step.run("refund", () => answer.payload.cents ?? cents);
    return `${paid} cents refunded`;
  },
});

await using engine = createEngine({ store: new MemoryStore(), jobs: { refund } });
const handler = createHandler(engine, { basePath: "/api/jobs", links });
// Deno.serve({ port: 8000 }, handler.fetch);
await engine.start();

const mails: string[] = [];

/** Would send a mail. */
function mail(to: string, link: string): void {
  console.log(`To ${to}: ${link.slice(0, 60)}…`);
  mails.push(link);
}

const { id } = await engine.jobs.refund.trigger({ order: "7", cents: 1200 });
while ((await engine.getRun(id))?.status !== "waiting") await new Promise((resolve) => setTimeout(resolve, 10));
const [link] = mails;

const opened = await handler.fetch(new Request(link!));
const heading = /<h1>(.*?)<\/h1>/.exec(await opened.text())?.[1];
console.log(`The page asks "${heading}", and the run still waits: ${(await engine.getRun(id))?.status}`);

const wrong = await send({ f0: "true", f1: "a lot" });
console.log(`A wrong amount is answered with ${wrong.status}: ${/role="alert">(.*?)</.exec(await wrong.text())?.[1]}`);

const right = await send({ f0: "true", f1: "800" });
console.log(`The answer is accepted: ${right.status}, and a reload only says "${await headingOf(link!)}"`);

const run = await engine.waitForRun(id);
const [wait] = await engine.getWaits(id);
console.log(`${run.output}, as ${wait?.signalledBy} has decided`);

/** Sends the form of the page. */
function send(fields: Record<string, string>): Promise<Response> {
  return handler.fetch(new Request(link!, { method: "POST", body: new URLSearchParams(fields) }));
}

async function headingOf(address: string): Promise<string | undefined> {
  const page = await handler.fetch(new Request(address));
  return /<h1>(.*?)<\/h1>/.exec(await page.text())?.[1];
}
