import assert from "node:assert/strict";
import type { RunEvent } from "../../../src/model/event.ts";
import { ClientStream } from "../../../src/http/streams/client_stream.ts";
import { FakeHost } from "../../support/fake_host.ts";

const RUN = { runId: "run", jobName: "job", labels: {}, timestamp: "2026-01-01T00:00:00.000Z" };

function aProgress(number: number): RunEvent {
  return { ...RUN, type: "run:progress", progress: { current: number }, sequence: 2 * number };
}

Deno.test("ClientStream.reach() never sends an id that lies before what the client has", async () => {
  const host = new FakeHost();
  const stream = new ClientStream({
    filter: {},
    hasIds: true,
    isCounted: false,
    throttleMs: 100,
    digestMs: null,
    host,
  });

  stream.next(aProgress(3));
  stream.reach({ position: 3, at: 1 });
  stream.next(aProgress(4)); // is held back
  stream.noteUpToDate({ position: 8, at: 1 }); // is sent
  stream.reach({ position: 6, at: 1 }); // by a fan-out that has not come as far
  stream.endWhenRead();

  const ids = (await stream.toResponse().text()).split("\n\n").filter((block) => block.startsWith("id:"));
  assert.deepEqual(ids, ["id: 3-1", "id: 8-1"]);
});
