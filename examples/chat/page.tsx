/** @jsxImportSource react */
// The page of page.html. server.ts makes a bundle of it.

import { useChat } from "@ai-sdk/react";
import { createClient } from "@holdfast/jobs/client";
import type { UIMessage } from "ai";
import { type FormEvent, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import type { jobs } from "./jobs.ts";
import { AnswerReset, RunTransport } from "./run_transport.ts";

const client = createClient<typeof jobs>({ url: "/api/jobs" });

function Chat({ id, transport, first }: { id: string; transport: RunTransport; first: UIMessage[] }) {
  const [text, setText] = useState("");
  const { messages, sendMessage, regenerate, resumeStream, stop, status, error } = useChat({
    id,
    transport,
    messages: first,
    resume: true, // after a reload
    onError: (error) => {
      if (error instanceof AnswerReset) void resumeStream();
    },
  });
  const isAnswering = status === "submitted" || status === "streaming";
  const send = (event: FormEvent) => {
    event.preventDefault();
    void sendMessage({ text });
    setText("");
  };
  // The run keeps the half answer that it has written. If its trigger is not answered yet, the transport cancels it, and
  // the run known here is the one before, which has ended.
  const end = () => {
    if (transport.runId !== null) client.cancel(transport.runId).catch(() => {});
    void stop();
  };
  return (
    <main>
      {messages.map(({ id, role, parts }) => (
        <article key={id} aria-label={role === "user" ? "You" : "Model"}>
          <p>{parts.map((part) => part.type === "text" ? part.text : "").join("")}</p>
        </article>
      ))}
      <p role="status">{isAnswering ? "The model answers" : "Ready"}</p>
      {error && !(error instanceof AnswerReset) && <p role="alert">{error.message}</p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={({ target }) => setText(target.value)} required />
        <button type="submit" disabled={isAnswering}>Send</button>
        <button type="button" disabled={!isAnswering} onClick={end}>Stop</button>
        <button type="button" disabled={isAnswering || messages.length === 0} onClick={() => void regenerate()}>
          Answer again
        </button>
        <button type="button" onClick={() => fetch("/kill-the-worker", { method: "POST" })}>Kill the worker</button>
      </form>
    </main>
  );
}

/** The messages of a chat: those that its newest run was asked to answer. Its own answer is read from its stream. */
async function open(chat: string) {
  const response = await fetch(`/api/jobs/runs?label.chat=${chat}&limit=1`);
  const { runs: [newest] } = await response.json();
  const transport = new RunTransport(client, "parts", newest?.id ?? null);
  createRoot(document.getElementById("root")!).render(
    <StrictMode>
      <Chat id={chat} transport={transport} first={newest?.input.messages ?? []} />
    </StrictMode>,
  );
}

if (location.hash === "") location.hash = crypto.randomUUID();
await open(location.hash.slice(1));
