import assert from "node:assert/strict";
import { followEvents } from "../../src/cli/service/follow_events.ts";
import type { Service } from "../../src/cli/service/service.ts";
import { NotFoundError, StoreError } from "../../src/model/error.ts";

/** A service that answers each connection in the given way, and then ends the command. */
function aServiceOf(answers: readonly (() => Response)[]) {
  const end = new AbortController();
  const lastIds: (string | null)[] = [];
  const service: Service = {
    kind: "http",
    database: null,
    engine: null,
    ask: (_path, { headers }) => {
      lastIds.push(new Headers(headers).get("last-event-id"));
      const answer = answers[lastIds.length - 1];
      if (answer !== undefined) return Promise.resolve().then(answer);
      end.abort();
      return Promise.reject(new StoreError("The command has ended"));
    },
    close: () => Promise.resolve(),
  };
  return { service, lastIds, abortSignal: end.signal };
}

const stream = (id: number) => () => new Response(`data: {"sequence":${id}}\n\nid: ${id}\n\n`);
const away = () => {
  throw new StoreError("Cannot reach http://localhost: refused");
};
const unavailable = () =>
  Response.json({ error: "The service cannot answer now", code: "unavailable" }, { status: 503 });
const badGateway = () => new Response("<html>", { status: 502 });

Deno.test("followEvents() continues when a service that was away is back", async () => {
  const { service, lastIds, abortSignal } = aServiceOf([stream(1), away, unavailable, badGateway, stream(2)]);
  const notes: string[] = [];

  const events = [];
  const options = { abortSignal, note: (text: string) => void notes.push(text) };
  for await (const { event } of followEvents(service, "/runs/subscribe", {}, options)) events.push(event?.sequence);

  assert.deepEqual(events, [1, 2]);
  assert.deepEqual(lastIds, [null, "1", "1", "1", "1", "2"]);
  assert.deepEqual(notes, ["Cannot reach http://localhost: refused; trying again", "The service is back"]);
});

Deno.test("followEvents() fails if the service cannot be reached at first, or refuses the request", async () => {
  const gone = () => Response.json({ error: "There is no such run", code: "not_found" }, { status: 404 });
  for (const [answers, type] of [[[away], StoreError], [[stream(1), gone], NotFoundError]] as const) {
    const { service, abortSignal } = aServiceOf(answers);

    const following = Array.fromAsync(followEvents(service, "/subscribe", {}, { abortSignal, note: () => {} }));

    await assert.rejects(
      following,
      (error: Error & { code?: string }) =>
        type === StoreError ? error instanceof StoreError : error.code === "not_found",
    );
  }
});
