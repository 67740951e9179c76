import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { browserTest, type InBrowser } from "./browser_tests.ts";

const WORDS = 40;

function chatTest(name: string, body: (context: InBrowser) => Promise<void>): void {
  browserTest(name, body, "chat/server.ts");
}

async function say(page: Page, text: string): Promise<void> {
  await page.getByLabel("Message").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

/** The answers on the page, from now until none is written any more: each text that any of them had. */
async function answersOf(page: Page): Promise<string[][]> {
  await page.evaluate(() => {
    const seen: string[][] = [];
    const look = () => {
      const answers = [...document.querySelectorAll("article[aria-label=Model]")].map((one) => one.textContent!);
      if (JSON.stringify(seen.at(-1)) !== JSON.stringify(answers)) seen.push(answers);
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
    look();
    Object.assign(globalThis, { seen });
  });
  await page.getByText(`Word ${WORDS} of`).last().waitFor();
  await page.getByRole("status").getByText("Ready").waitFor();
  return await page.evaluate(() => (globalThis as unknown as { seen: string[][] }).seen);
}

/** The take that an answer is of, if it is the begin of one take alone. */
function takeOf(answer: string): string {
  const take = /take (\w{4})/.exec(answer)?.[1] ?? "";
  const number = /of answer (\d+)/.exec(answer)?.[1];
  const whole = Array.from({ length: WORDS }, (_, n) => `Word ${n + 1} of answer ${number}, take ${take}. `).join("");
  if (answer !== "") assert.equal(whole.slice(0, answer.length), answer);
  return take;
}

chatTest("useChat() shows the tokens of an answer as they come, and answers again", async ({ open, start }) => {
  const page = await open((await start()).url);

  await say(page, "Hello");
  const seen = await answersOf(page);
  await say(page, "And then?");
  await page.getByText(`Word ${WORDS} of answer 2`).waitFor();

  assert.equal(new Set(seen.flat().map(takeOf).filter(Boolean)).size, 1);
  assert.ok(seen.length > 10, `${seen.length} states of the page`);
  assert.deepEqual(
    await page.getByRole("article").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label"))),
    ["You", "Model", "You", "Model"],
  );
});

chatTest("regenerate() replaces an answer by that of another run, also after a reload", async ({ open, start }) => {
  const page = await open((await start()).url);
  const again = async () => {
    await page.getByRole("button", { name: "Answer again" }).click();
    await page.getByRole("status").getByText("The model answers").waitFor();
    return takeOf((await answersOf(page)).at(-1)![0]!);
  };
  await say(page, "Hello");
  const first = takeOf((await answersOf(page)).at(-1)![0]!);

  const takes = [first, await again(), await again()];
  await page.reload();
  await page.getByText(`Word ${WORDS} of`).waitFor();
  await page.getByRole("status").getByText("Ready").waitFor();
  const answers = await page.locator("article[aria-label=Model]").allTextContents();

  assert.equal(new Set(takes).size, 3, takes.join());
  assert.deepEqual(answers.map(takeOf), takes.slice(2));
});

chatTest(
  "useChat() never shows a mixture when the worker is killed in the middle of an answer",
  async ({ open, start }) => {
    const page = await open((await start()).url);
    await say(page, "Hello");
    await page.getByText("Word 5 of").waitFor();

    await page.getByRole("button", { name: "Kill the worker" }).click();
    const seen = await answersOf(page);

    const takes = new Set(seen.flat().map(takeOf).filter(Boolean));
    assert.equal(takes.size, 2);
    assert.ok(seen.every((answers) => answers.length <= 1), "one answer at a time");
    assert.equal(await page.getByRole("alert").count(), 0);
  },
);

chatTest("useChat() continues an answer after a reload, also in another page", async ({ open, start }) => {
  const page = await open((await start()).url);
  await say(page, "Hello");
  await page.getByText("Word 5 of").waitFor();

  await page.reload();
  await page.getByText("Word 6 of").waitFor();
  const seen = await answersOf(page);
  const other = await open(page.url());
  await other.getByText(`Word ${WORDS} of`).waitFor();

  assert.equal(new Set(seen.flat().map(takeOf).filter(Boolean)).size, 1);
  assert.deepEqual(
    await other.getByRole("article").allTextContents(),
    await page.getByRole("article").allTextContents(),
  );
  await say(other, "And then?");
  await other.getByText("of answer 2").waitFor();
});

chatTest("Stop keeps the half answer, also after a reload", async ({ open, start }) => {
  const page = await open((await start()).url);
  await say(page, "Hello");
  await page.getByText("Word 5 of").waitFor();

  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("status").getByText("Ready").waitFor();
  await page.reload();
  await page.getByText("Word 5 of").waitFor();
  await page.getByRole("status").getByText("Ready").waitFor();

  const [, answer] = await page.getByRole("article").allTextContents();
  assert.notEqual(takeOf(answer!), "");
  assert.ok(!answer!.includes(`Word ${WORDS} of`));
});
