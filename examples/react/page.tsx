/** @jsxImportSource react */
// The page of react.html. react_server.ts makes a bundle of it.

import { createClient, type RunId } from "@holdfast/jobs/client";
import { type FormEvent, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import type { jobs } from "./jobs.ts";
import { useRun } from "./use_run.ts";

const client = createClient<typeof jobs>({ url: "/api/jobs" });

interface Book {
  runId: RunId<"publish">;
  title: string;
}

function Page() {
  const [books, setBooks] = useState<Book[]>([]);
  const [title, setTitle] = useState("Holdfast");
  const trigger = async (event: FormEvent) => {
    event.preventDefault();
    const { runId } = await client.trigger("publish", { title });
    setBooks([{ runId, title }, ...books]);
  };
  return (
    <main>
      <form onSubmit={trigger}>
        <label>
          Title <input value={title} onChange={({ target }) => setTitle(target.value)} />
        </label>
        <button type="submit">Publish</button>
      </form>
      {books.map((book) => (
        <Publication
          key={book.runId}
          {...book}
          close={() => setBooks(books.filter((other) => other !== book))}
        />
      ))}
    </main>
  );
}

function Publication({ runId, title, close }: Book & { close: () => void }) {
  const { run, waits, error } = useRun(client, runId);
  if (error !== null) return <article>{error.message}</article>;
  if (run === null) return <article>...</article>;
  const answer = (waitId: string, approved: boolean) =>
    client.signal(runId, waitId, { signalId: crypto.randomUUID(), payload: { approved } });
  return (
    <article>
      <h2>{title}: {run.status}</h2>
      {run.progress && <progress value={run.progress.current} max={run.progress.total} />}
      {waits.filter(({ status }) => status === "pending").map(({ id, name }) => (
        <p key={id}>
          {name}: <button type="button" onClick={() => answer(id, true)}>Approve</button>
          <button type="button" onClick={() => answer(id, false)}>Reject</button>
        </p>
      ))}
      {run.output && <a href={run.output.address}>{run.output.pages} pages</a>}
      {run.error && <p role="alert">{run.error}</p>}
      <button type="button" onClick={close}>Close</button>
    </article>
  );
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <Page />
  </StrictMode>,
);
