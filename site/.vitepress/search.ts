// deno task docs: searches the site that was built, as its search box does, for what newcomers have searched for.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import MiniSearch from "minisearch";

const CHUNKS = fileURLToPath(new URL("../dist/assets/chunks/", import.meta.url));
const FIRST = 3;

/** What is searched for, and the pages of which one has to be among the first hits. */
const SEARCHES: Readonly<Record<string, string>> = {
  "agent": "words_from_elsewhere",
  "alerts": "guides/operate",
  "cancel run": "guides/bulk_operations reference/http guides/operate reference/cli concepts/states",
  "compensation": "words_from_elsewhere",
  "concurrency per user": "guides/flow",
  "cron timezone": "guides/schedules",
  "dashboard": "guides/dashboard",
  "dead letter": "words_from_elsewhere",
  "debounce": "words_from_elsewhere",
  "docker": "guides/deploy",
  "encryption": "words_from_elsewhere",
  "exactly once": "concepts/at_least_once",
  "express": "guides/frameworks",
  "failover": "words_from_elsewhere guides/postgres",
  "fan out": "words_from_elsewhere guides/child_runs",
  "getting started": "guides/quick_start",
  "heartbeat": "words_from_elsewhere concepts/leases reference/options",
  "hono": "guides/frameworks",
  "human approval": "guides/pause_for_a_person words_from_elsewhere",
  "idempotency": "words_from_elsewhere guides/write_a_job concepts/at_least_once",
  "kubernetes": "guides/deploy guides/operate",
  "large payload": "guides/choose_limits",
  "logging": "words_from_elsewhere",
  "middleware": "words_from_elsewhere",
  "migrate from bullmq": "guides/move_from_queues",
  "migrate from inngest": "words_from_elsewhere",
  "migrate from temporal": "guides/move_from_temporal",
  "next.js": "guides/frameworks",
  "outage": "words_from_elsewhere guides/postgres",
  "outbox": "words_from_elsewhere",
  "parallel steps": "guides/write_a_job guides/child_runs for_assistants",
  "postgres": "guides/postgres",
  "queries": "words_from_elsewhere",
  "quick start": "guides/quick_start",
  "rate limit": "guides/flow",
  "replay": "concepts/replay",
  "retry backoff": "guides/write_a_job reference/options",
  "saga": "words_from_elsewhere",
  "serverless": "guides/deploy",
  "singleton": "words_from_elsewhere",
  "streaming": "words_from_elsewhere",
  "throttle": "words_from_elsewhere",
  "timeout": "guides/write_a_job guides/choose_limits reference/options",
  "unit test": "guides/testing",
  "versioning": "words_from_elsewhere guides/changing_jobs",
  "wait for event": "words_from_elsewhere guides/pause_for_a_person",
  "webhook": "words_from_elsewhere",
};

/** The index that the site loads, with the settings of VitePress (`VPLocalSearchBox.vue` of 1.6.4). */
async function readIndex(): Promise<MiniSearch> {
  const name = readdirSync(CHUNKS).find((name) => name.startsWith("@localSearchIndexroot"))!; // the build makes it
  const { default: text } = await import(new URL(`../dist/assets/chunks/${name}`, import.meta.url).href);
  return MiniSearch.loadJSON(text, {
    fields: ["title", "titles", "text"],
    storeFields: ["title", "titles"],
    searchOptions: { fuzzy: 0.2, prefix: true, boost: { title: 4, text: 2, titles: 1 } },
  });
}

const index = await readIndex();

Deno.test("47 searches of newcomers each find the right page among the first three hits", () => {
  const wrong = Object.entries(SEARCHES).flatMap(([search, right]) => {
    const pages = index.search(search).map(({ id }) =>
      String(id).replace(/^\/[^/]+\//, "").replace(/(\.html)?#.*/, "")
    );
    const found = pages.slice(0, FIRST).some((page) => right.split(" ").includes(page));
    return found ? [] : [`${search}: ${pages.slice(0, FIRST).join(", ")}`];
  });

  assert.equal(Object.keys(SEARCHES).length, 47);
  assert.deepEqual(wrong, []);
});

Deno.test("the site has a favicon, its pages as Markdown, all of them as one text, and the reference of the names", () => {
  const dist = new URL("../dist/", import.meta.url);
  const files = ["icon.svg", "guides/write_a_job.md", "contents.html", "llms.txt", "llms-full.txt", "api/index.html"];

  for (const file of files) assert.ok(Deno.statSync(new URL(file, dist)).size > 100, file);
  assert.throws(() => Deno.statSync(new URL("adr", dist)), Deno.errors.NotFound);
});
