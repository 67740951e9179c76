import type { Store } from "../../src/store/store.ts";
import { createEngine } from "../../src/engine/create_engine.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { anything, claimOne } from "../support/stores/for_each_store.ts";
import { cliJobs, fill, type Filled } from "./places.ts";

/** The ids of the runs of {@linkcode fillForDamage}. */
export interface Damageable extends Filled {
  plain: string;
  fair: string;
  running: string;
  chatting: string;
}

const chat = defineJob({
  name: "chat",
  input: anything,
  messages: { text: anything, stop: anything, other: anything },
  async run(step) {
    await step.run("greet", ({ stream }) => stream("words").pipe(ReadableStream.from(["hello", "you"])));
    await step.receive("first", { names: ["text"] });
    await step.receive("next", { names: ["text", "stop"], timeout: 86_400_000, close: "timeout" });
  },
});

/**
 * As {@linkcode fill}, with a pending run without a key, one with a fairness key, one that a worker executes, and one that
 * has written to a stream, has received its first message, waits for the next one, and has one of another name.
 */
export async function fillForDamage(store: Store): Promise<Damageable> {
  const filled = await fill(store);
  await using chats = createEngine({ store, jobs: { chat }, logger: null });
  const { id: chatting } = await chats.trigger("chat", null, {});
  for (const name of ["text", "other"]) await chats.send(chatting, name, null, { id: name });
  await chats.runUntilIdle();
  await using engine = createEngine({ store, jobs: cliJobs, logger: null });
  const { id: running } = await engine.trigger("approve", {}, { concurrencyKey: "approve:acme" });
  await claimOne(store, "approve");
  const { id: plain } = await engine.trigger("approve", {});
  const { id: fair } = await engine.trigger("approve", {}, { fairnessKey: "acme" });
  return { ...filled, running, plain, fair, chatting };
}

/** Something that the doctor has to find. */
export interface Damage {
  /** What is done. */
  name: string;
  /** Statements that do it; tables begin with `T.`. */
  sql: (runs: Damageable) => string;
  /** What is found. */
  found: RegExp;
}

/** Adds chunks of one item each to the stream of a run: the number, and the one that it follows. */
const chunks = (id: string, places: readonly (readonly [position: number, follows: number])[], items = '["a"]') =>
  places.map(([position, follows]) =>
    `INSERT INTO T.chunks (run_seq, stream, position, follows, first, count, size, at, generation, items)
     SELECT seq, 'tokens', ${position}, ${follows}, ${follows}, 1, ${3 * position}, 1, NULL, '${items}'
     FROM T.runs WHERE id = '${id}'`
  ).join("; ");

const seqOf = (id: string) => `(SELECT seq FROM T.runs WHERE id = '${id}')`;

/** Damages that each store can have. */
export const DAMAGES: readonly Damage[] = [
  {
    name: "a number of runs that is too high",
    sql: () => "UPDATE T.counts SET runs = runs + 1 WHERE status = 'failed'",
    found: /There are 1 failed runs of import-csv, but 2 are kept/,
  },
  {
    name: "two runs of one key that are ready",
    sql: ({ second }) => `UPDATE T.runs SET queue_state = 'R' WHERE id = '${second}'`,
    found: /K1 is broken/,
  },
  {
    name: "a free key whose first run is blocked",
    sql: ({ first }) => `UPDATE T.runs SET queue_state = 'B' WHERE id = '${first}'`,
    found: /K2 is broken/,
  },
  {
    name: "a run that is executed without a lease",
    sql: ({ running }) => `UPDATE T.runs SET lease_owner = NULL, lease_expires_at = NULL WHERE id = '${running}'`,
    found: /is running, and its lease is that of nobody/,
  },
  {
    name: "a run that has ended and is in a queue",
    sql: ({ completed }) => `UPDATE T.runs SET queue_state = 'R' WHERE id = '${completed}'`,
    found: /is completed, and (is )?in a queue/,
  },
  {
    name: "a pending run that is in no queue",
    sql: ({ plain }) => `UPDATE T.runs SET queue_state = NULL WHERE id = '${plain}'`,
    found: /is pending, and in no queue/,
  },
  {
    name: "a waiting run that nothing can resume",
    sql: ({ waiting }) =>
      `DELETE FROM T.pauses WHERE run_seq = ${
        seqOf(waiting)
      }; UPDATE T.runs SET timer_at = NULL WHERE id = '${waiting}'`,
    found: /is waiting, and nothing can resume it/,
  },
  {
    name: "a waiting run that wakes after its deadline",
    sql: ({ waiting }) => `UPDATE T.runs SET timer_at = timer_at + 1000 WHERE id = '${waiting}'`,
    found: /wakes after the deadline of "review"/,
  },
  {
    name: "a pause that is open after the end of its run",
    sql: ({ waiting, completed }) =>
      `UPDATE T.pauses SET run_seq = ${seqOf(completed)} WHERE run_seq = ${seqOf(waiting)}`,
    found: /Pause "review" of run .* is pending, and its run completed/,
  },
  {
    name: "a wait that has timed out after its deadline",
    sql: ({ waiting }) =>
      `UPDATE T.pauses SET status = 'resolved', outcome = 'timeout', resolved_at = deadline_at + 5
       WHERE run_seq = ${seqOf(waiting)}`,
    found: /has ended by timeout at another time/,
  },
  {
    name: "a step that its run has not counted",
    sql: () => "UPDATE T.steps SET recorded_no = 99 WHERE name = 'write'",
    found: /Step "write" of run .* is a record that its run has not counted/,
  },
  {
    name: "a key that is held by a run that has ended",
    sql: ({ completed }) =>
      `INSERT INTO T.holders (concurrency_key, run_id, generation) VALUES ('old', '${completed}', 1)`,
    found: /The key old is held by run .*, which is completed/,
  },
  {
    name: "a run that is executed without its key",
    sql: ({ running }) => `DELETE FROM T.holders WHERE run_id = '${running}'`,
    found: /is executed, and does not hold its key approve:acme/,
  },
  {
    name: "a key with two holders",
    sql: ({ first }) =>
      `INSERT INTO T.holders (concurrency_key, run_id, generation) VALUES ('approve:acme', '${first}', 1)`,
    found: /The key approve:acme is held by 2 runs, of 1/,
  },
  {
    name: "a fairness key whose first run is not known",
    sql: () => "DELETE FROM T.heads",
    found: /T1 is broken/,
  },
  {
    name: "steps without their run",
    sql: ({ failed }) => `DELETE FROM T.runs WHERE id = '${failed}'`,
    found: /A row of (holdfast_)?steps belongs to no r/,
  },
  {
    name: "a run that has ended at no time",
    sql: ({ completed }) => `UPDATE T.runs SET completed_at = NULL WHERE id = '${completed}'`,
    found: /is completed, and has no time of its end/,
  },
  {
    name: "a failed run without its failure",
    sql: ({ failed }) => `UPDATE T.runs SET failure = NULL WHERE id = '${failed}'`,
    found: /is failed, and has no failure/,
  },
  {
    name: "labels without their rows of the index",
    sql: ({ failed }) => `DELETE FROM T.labels WHERE run_seq = ${seqOf(failed)}`,
    found: /is not found by its label "org"/,
  },
  {
    name: "a row of the index that is no label",
    sql: ({ failed }) => `UPDATE T.runs SET labels = '{}' WHERE id = '${failed}'`,
    found: /is found by a label "org" that it has not/,
  },
  {
    name: "a run without its input",
    sql: ({ plain }) => `DELETE FROM T.inputs WHERE run_seq = ${seqOf(plain)}`,
    found: /has no input/,
  },
  {
    name: "an output that is no JSON",
    sql: ({ completed }) => `UPDATE T.runs SET output = '{"rows":4' WHERE id = '${completed}'`,
    found: /has no JSON as "output" in the table of runs/,
  },
  {
    name: "an input that is no JSON",
    sql: ({ plain }) => `UPDATE T.inputs SET payload = 'undefined' WHERE run_seq = ${seqOf(plain)}`,
    found: /has no JSON as "payload" in the table of inputs/,
  },
  {
    name: "labels that are no JSON",
    sql: ({ plain }) => `UPDATE T.runs SET labels = '{' WHERE id = '${plain}'`,
    found: /has no JSON as "labels" in the table of runs/,
  },
  {
    name: "items that do not count, and are still there",
    sql: ({ completed }) => chunks(completed, [[1, 0], [2, 1], [3, 1]]),
    found: /Chunk 3 of stream "tokens" of run .* does not follow chunk 2/,
  },
  {
    name: "a chunk that is missing",
    sql: ({ completed }) => chunks(completed, [[1, 0], [3, 2]]),
    found: /Chunk 3 of stream "tokens" of run .* does not follow chunk 1/,
  },
  {
    name: "items that are no JSON",
    sql: ({ completed }) => chunks(completed, [[1, 0]], '["a'),
    found: /has no JSON as "items" in the table of chunks/,
  },
  {
    name: "a chunk that has lost an item",
    sql: ({ chatting }) => `UPDATE T.chunks SET items = '["hello"]' WHERE count = 2 AND run_seq = ${seqOf(chatting)}`,
    found: /Chunk \d of stream "words" of run .* says that it has 2 items, and has others/,
  },
  {
    name: "items of a completed step that do not count",
    sql: ({ chatting }) => `UPDATE T.chunks SET items = NULL WHERE generation IS NULL AND run_seq = ${seqOf(chatting)}`,
    found: /Chunk \d of stream "words" of run .* is void, and permanent/,
  },
  {
    name: "items of a lease that was never given",
    sql: ({ chatting }) => `UPDATE T.chunks SET generation = 99 WHERE run_seq = ${seqOf(chatting)}`,
    found: /Chunk \d of stream "words" of run .* is of lease 99, of 1/,
  },
  {
    name: "a message that an open receive has not taken",
    sql: ({ chatting }) => `UPDATE T.messages SET name = 'stop' WHERE id = 'other' AND run_seq = ${seqOf(chatting)}`,
    found: /Message "other" of run .* is unread, and receive "next" waits for it/,
  },
  {
    name: "a message that was taken by an open receive",
    sql: ({ chatting }) =>
      `UPDATE T.messages SET pause_seq = (SELECT seq FROM T.pauses WHERE name = 'next' AND run_seq = ${seqOf(chatting)})
       WHERE id = 'other'`,
    found: /Message "other" of run .* was taken by no receive/,
  },
  {
    name: "a received message that is gone",
    sql: ({ chatting }) => `DELETE FROM T.messages WHERE id = 'text' AND run_seq = ${seqOf(chatting)}`,
    found: /Receive "first" of run .* has ended by 0 messages/,
  },
  {
    name: "a received message that has another name",
    sql: ({ chatting }) => `UPDATE T.messages SET name = 'other' WHERE id = 'text' AND run_seq = ${seqOf(chatting)}`,
    found: /Receive "first" of run .* has ended by 1 messages, 1 of other names/,
  },
  {
    name: "a receive that has taken too much",
    sql: ({ chatting }) =>
      `UPDATE T.messages SET name = 'text', pause_seq = (SELECT pause_seq FROM T.messages WHERE id = 'text')
       WHERE id = 'other' AND run_seq = ${seqOf(chatting)}`,
    found: /Receive "first" of run .* has ended by 2 messages, 0 of other names/,
  },
  {
    name: "an unread message that is gone, though one after it is there",
    sql: ({ chatting }) => `UPDATE T.messages SET no = 3 WHERE id = 'other' AND run_seq = ${seqOf(chatting)}`,
    found: /Run .* has 2 messages, and their numbers are 1 to 3/,
  },
  {
    name: "a message that was put into the table by hand",
    sql: ({ plain }) =>
      `INSERT INTO T.messages (run_seq, no, id, name, payload, accepted_at)
       VALUES (${seqOf(plain)}, 1, 'm1', 'text', 'null', 1)`,
    found: /Run .* has 1 messages, and does not know of any/,
  },
  {
    name: "a closed inbox with an open receive",
    sql: ({ chatting }) =>
      `UPDATE T.pauses SET receive = '"closed"' WHERE name = 'first' AND run_seq = ${seqOf(chatting)}`,
    found: /Receive "next" of run .* is open, and the inbox is closed/,
  },
  {
    name: "a message that is no JSON",
    sql: ({ chatting }) =>
      `UPDATE T.messages SET payload = '{"text":' WHERE id = 'text' AND run_seq = ${seqOf(chatting)}`,
    found: /has no JSON as "payload" in the table of messages/,
  },
  {
    name: "names of a receive that are no JSON",
    sql: ({ chatting }) => `UPDATE T.pauses SET receive = '{' WHERE name = 'next' AND run_seq = ${seqOf(chatting)}`,
    found: /has no JSON as "receive" in the table of pauses/,
  },
  {
    name: "a step that is recorded twice",
    sql: ({ completed }) =>
      `INSERT INTO T.steps (run_seq, name, position, status, attempts, recorded_no, started_at, completed_at, output)
       SELECT run_seq, name || '#2', position, status, attempts, recorded_no, started_at, completed_at, output
       FROM T.steps WHERE name = 'write' AND run_seq = ${seqOf(completed)}`,
    found: /has 2 steps that are one record: "write", "write#2"/,
  },
  {
    name: "a journal that lacks its newest row",
    sql: () => "DELETE FROM T.journal WHERE position = (SELECT max(position) FROM T.journal)",
    found: /The journal lacks that run .* (is running|was triggered)/,
  },
];

/** What somebody has to act on, though no table is damaged. */
export const STUCK: readonly Damage[] = [
  {
    name: "a lease that has expired",
    sql: ({ running }) => `UPDATE T.runs SET lease_expires_at = 1 WHERE id = '${running}'`,
    found: /The lease of run .* has expired over a minute ago/,
  },
  {
    name: "a run that is abandoned again and again",
    sql: ({ plain }) => `UPDATE T.runs SET abandonments = 3 WHERE id = '${plain}'`,
    found: /was abandoned 3 times in a row/,
  },
  {
    name: "a message that a completed run has not received",
    sql: ({ completed, chatting }) =>
      `INSERT INTO T.messages (run_seq, no, id, name, payload, accepted_at)
       VALUES (${seqOf(completed)}, 1, 'm1', 'text', 'null', 1), (${seqOf(completed)}, 2, 'm2', 'text', 'null', 1);
       UPDATE T.runs SET has_pauses = (SELECT has_pauses FROM T.runs WHERE id = '${chatting}') WHERE id = '${completed}'`,
    found: /Runs of \S+ have completed with 2 unread messages, and had not closed their inboxes: run .* is one of them/,
  },
  {
    name: "an old wait without a deadline",
    sql: ({ waiting }) => `UPDATE T.pauses SET deadline_at = NULL, created_at = 1 WHERE run_seq = ${seqOf(waiting)}`,
    found: /has no deadline, and is older than 30 days/,
  },
  ...["is refused: no input", "waits for an engine that has its job"].map((what): Damage => ({
    name: `a row of the outbox that ${what}`,
    sql: () =>
      `CREATE TABLE T.outbox (no bigint, kind text, name text, error text, at bigint);
       INSERT INTO T.outbox VALUES (7, 'trigger', 'ship', ${what.includes("refused") ? "'no input'" : "NULL"}, 1)`,
    found: new RegExp(`^Row 7 of the outbox \\(trigger "ship"\\) ${what}$`),
  })),
  {
    name: "a worker whose clock is ahead",
    sql: () => "UPDATE T.workers SET seen_at = seen_at + 3600000",
    found: /The clock of worker .* is \d+ s ahead/,
  },
  {
    name: "a run that has been due for long",
    sql: ({ plain }) =>
      `UPDATE T.runs SET created_at = created_at - 600000, updated_at = updated_at - 600000
       WHERE id = '${plain}'`,
    found: /Run .* of approve is due since /,
  },
];
