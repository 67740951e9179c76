import assert from "node:assert/strict";
import { RunTransport } from "../../examples/chat/run_transport.ts";

Deno.test("the transport of the chat cancels a run that was stopped before its trigger was answered", async () => {
  const triggered = Promise.withResolvers<{ runId: string }>();
  const cancelled: string[] = [];
  const client = {
    trigger: () => triggered.promise,
    cancel: (runId: string) => Promise.resolve(void cancelled.push(runId)),
    async *readStream() {},
  };
  const transport = new RunTransport(client as never, "parts", "the last run");
  const stopping = new AbortController();
  const messages = [{ id: "m1", role: "user" as const, parts: [] }];

  const sent = transport.sendMessages(
    { trigger: "submit-message", chatId: "c", messageId: undefined, messages, abortSignal: stopping.signal },
  );
  stopping.abort();
  triggered.resolve({ runId: "this run" });
  await sent;

  assert.deepEqual(cancelled, ["this run"]);
});
