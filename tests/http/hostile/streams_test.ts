import assert from "node:assert/strict";
import { EventReader } from "../../support/http/event_reader.ts";
import { recordEvents } from "../../support/stores/for_each_store.ts";
import { aRequest, aService } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";

Deno.test("GET /runs/subscribe ignores a limit, an offset and a status, whatever they are", async () => {
  await using service = aService();
  const query = "limit=1&limit=x&offset=-1&status=nonsense&runId=a&runId=b";

  await using reader = new EventReader(await service.handler.fetch(aRequest("GET", `/runs/subscribe?${query}`)));
  for (const n of [1, 2]) await service.engine.trigger("echo", { n });
  await service.host.settle();

  assert.deepEqual(reader.types, ["run:trigger", "run:trigger"]);
});

const HOSTILE_TEXTS = [
  "\n",
  "\r",
  "\r\n",
  "\n\ndata: {}\n\n",
  "\nevent: run:complete\nid: 1\nretry: 0\n\n",
  "\r\rdata: {}\r\r",
  "\u2028\u2029\u0085\u000b\u000c",
  "\u0000\ufeff\ud800",
  ": comment",
  "</script><!--",
];

/** Reads a stream as the standard says (WHATWG HTML, section 9.2.6): the data of every event, and nothing else. */
function dataOf(text: string): string[] {
  const told: string[] = [];
  let data: string[] = [];
  for (const line of text.split(/\r\n|\r|\n/)) {
    if (line === "") {
      if (data.length > 0) told.push(data.join("\n"));
      data = [];
    } else if (!line.startsWith(":") && line !== "retry: 86400000") {
      assert.match(line, /^data: /);
      data.push(line.slice("data: ".length));
    }
  }
  return told;
}

Deno.test("event streams tell one event for each that happened, whatever texts are in it", async () => {
  const name = "büro \u2028 💩";
  const job = aJob(async (step, input) => {
    for (const [n, text] of HOSTILE_TEXTS.entries()) {
      step.progress(n, 10, text);
      await service.host.settle(2); // its readers come along: nothing is superseded
      step.log.info(text, { [text]: text });
      await step.run(`${name} ${n}`, () => ({ [text]: text }));
      await step.run("fails", () => Promise.reject(new Error(text))).catch(() => {});
    }
    step.progress(10);
    throw new Error(JSON.stringify(input) + HOSTILE_TEXTS.join(""));
  }, name);
  await using service = aService({ sseThrottleMs: 0 }, undefined, { job });
  const happened = recordEvents(service.engine);
  const { id } = await service.engine.trigger(name, HOSTILE_TEXTS, { labels: { org: "\u2028" } });
  const follow = async (path: string) => (await service.handler.fetch(aRequest("GET", path))).text();
  const reading = [follow(`/subscribe?runId=${id}`), follow("/runs/subscribe")];
  await service.host.settle();

  await service.engine.runUntilIdle();
  await service.host.settle();
  await service.engine.stop();
  const [told, toldOfAll] = (await Promise.all(reading)).map((text) => dataOf(text).map((data) => JSON.parse(data)));

  const after = happened.filter(({ type }) => !["run:trigger", "run:lease-renewed"].includes(type));
  assert.equal(after.length, 3 + 1 + 6 * HOSTILE_TEXTS.length);
  // What was thrown itself stays in the process, and the numbers are those of the journal.
  const shown = after.map(({ sequence: _, ...event }) => ({ ...event, thrown: undefined }));
  assert.deepEqual(told!.map(({ sequence: _, ...event }) => event), JSON.parse(JSON.stringify(shown)));
  assert.deepEqual(
    toldOfAll!.map(({ type }) => type),
    after.map(({ type }) => type).filter((type) => type.startsWith("run:")),
  );
});

Deno.test("GET /subscribe tells of ten thousand calls of progress the first and the last", async () => {
  const busy = aJob((step) => {
    for (let n = 1; n <= 10_000; n++) step.progress(n);
  }, "busy");
  await using service = aService({}, undefined, { busy });
  const { id } = await service.engine.trigger("busy", {});
  await using reader = new EventReader(await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`)));
  await service.host.settle();

  await service.engine.runUntilIdle();
  await reader.ended;

  const progress = reader.events.flatMap((event) => event.type === "run:progress" ? [event.progress.current] : []);
  assert.deepEqual(progress, [1, 10_000]);
});
