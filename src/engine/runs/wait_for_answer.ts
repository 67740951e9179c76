import { ConflictError } from "../../model/error.ts";
import { answerName } from "../../model/message.ts";
import type { RunText } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { Json } from "../../values/json.ts";
import { untilFound, type WaitForRunDeps } from "./wait_for_run.ts";

/** Waits until a run has answered a message: it is the output of a step. See `Engine.ask()`. */
export async function waitForAnswer(
  { runId, messageId }: { runId: string; messageId: string },
  timeout: number | undefined,
  deps: WaitForRunDeps,
): Promise<Json> {
  const find = async ({ status }: RunText) => {
    const answer = await readAnswer(deps.store, runId, messageId);
    if (answer !== null || status !== "completed") return answer;
    throw new ConflictError(`Run "${runId}" has completed without an answer to message "${messageId}"`);
  };
  return (await untilFound(runId, { find, timeout, verb: `answered message "${messageId}"` }, deps)).answer;
}

/** Reads the answer to a message; `null`: there is none. */
async function readAnswer(
  store: Pick<Store, "readValue">,
  runId: string,
  messageId: string,
): Promise<{ answer: Json } | null> {
  const decoder = new TextDecoder();
  let text = "";
  for (let from: number | null = 0; from !== null;) {
    const place = { of: "step", runId, stepName: answerName(messageId), value: "output" } as const;
    const part = await store.readValue(place, from);
    if (part === null) return null;
    text += decoder.decode(part.bytes, { stream: true });
    from = part.next;
  }
  return { answer: JSON.parse(text) };
}
