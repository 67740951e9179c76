import assert from "node:assert/strict";
import { rpc } from "../mcp/stateless_client.ts";
import { Child } from "../processes/child.ts";
import { until } from "../processes/deadline.ts";

/** A server over a file, and a client of it. */
async function open(database: string) {
  const process = new Child("mcp_server.ts", database);
  const { url } = await process.hear("listening");
  const ask = (method: string, params: Record<string, unknown>) => rpc(fetch, String(url), method, params);
  return { process, ask, [Symbol.asyncDispose]: () => process[Symbol.asyncDispose]() };
}

Deno.test("a task survives kill -9 of its server after the call, the question, the answer and the result", async () => {
  const folder = await Deno.makeTempDir();
  const database = `${folder}/jobs.db`;
  const answer = (confirm: boolean) => ({ confirm: { action: "accept", content: { confirm } } });
  try {
    await using first = await open(database);
    const called = await first.ask("tools/call", { name: "confirm_delete", arguments: { filename: "a.txt" } });
    const { taskId } = called.result;
    await first.process.end("SIGKILL");

    await using second = await open(database);
    const asked = async () => (await second.ask("tasks/get", { taskId })).result.status === "input_required";
    await until(asked, "the second server was to ask the question");
    await second.process.end("SIGKILL");

    await using third = await open(database);
    const accepted = await third.ask("tasks/update", { taskId, inputResponses: answer(true) });
    await third.process.end("SIGKILL");

    await using fourth = await open(database);
    const again = await fourth.ask("tasks/update", { taskId, inputResponses: answer(false) });
    const ended = async () => (await fourth.ask("tasks/get", { taskId })).result.status === "completed";
    await until(ended, "the fourth server was to end the task");
    await fourth.process.end("SIGKILL");

    await using fifth = await open(database);
    const { result } = await fifth.ask("tasks/get", { taskId });
    assert.deepEqual([accepted.result.resultType, again.result.resultType], ["complete", "complete"]);
    assert.equal(result.result.content[0].text, "Deleted a.txt");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
