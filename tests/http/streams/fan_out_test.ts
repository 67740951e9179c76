import assert from "node:assert/strict";
import { formatCursor } from "../../../src/model/journal.ts";
import { aStart } from "../../support/fixtures.ts";
import { claimOne, forEachStore, LEASE_MS, pass } from "../../support/stores/for_each_store.ts";
import { aRequest, aService } from "../../support/http/http.ts";

/** Reads a stream as fast as it comes. */
function readText(response: Response): { text: string; leave: () => Promise<void> } {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const read = { text: "", leave: () => reader.cancel() };
  (async () => {
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) read.text += chunk.value;
  })();
  return read;
}

forEachStore("GET /subscribe leaves nothing out when another stream of the run began further on", async (context) => {
  const { store, host } = context;
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  const { lease } = await claimOne(store, "echo");
  const place = (await store.findCursor(null))!;
  // Somebody follows, so the journal is read: up to here.
  const list = readText(await service.handler.fetch(aRequest("GET", "/runs/subscribe")));
  await pass(host, 50);
  await store.renew([{ lease, reports: [aStart()] }], LEASE_MS);

  const path = `/subscribe?runId=${id}`;
  const later = readText(await service.handler.fetch(aRequest("GET", path)));
  await host.settle();
  const resumed = readText(
    await service.handler.fetch(aRequest("GET", `${path}&lastEventId=${formatCursor(place)}`)),
  );
  await host.settle();
  await pass(host, 50);

  assert.match(resumed.text, /"type":"step:start"/);
  assert.doesNotMatch(later.text, /"type":"step:start"/); // its state was read after that
  for (const { leave } of [list, later, resumed]) await leave();
});
