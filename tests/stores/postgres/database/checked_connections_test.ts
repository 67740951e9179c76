import assert from "node:assert/strict";
import { openPool } from "../../../../src/stores/postgres/database/client.ts";
import { inTime, until } from "../../../processes/deadline.ts";

/** What a server is asked on a connection. */
interface Question {
  sql: string;
  /** Answers it, with one row. */
  answer(value: string): void;
}

/** A server that takes each connection, and answers when a test says so. */
class ScriptedServer implements AsyncDisposable {
  readonly #listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  readonly #connections = new Set<Deno.TcpConn>();
  readonly #accepting: Promise<void>;
  /** What it has not answered yet. */
  questions: Question[] = [];

  constructor() {
    this.#accepting = this.#accept();
  }

  get url(): string {
    return `postgres://app@127.0.0.1:${(this.#listener.addr as Deno.NetAddr).port}/jobs`; // it listens on TCP
  }

  /** The next question about a subject. It leaves the list. */
  async take(subject: RegExp): Promise<Question> {
    await until(() => this.questions.some(({ sql }) => subject.test(sql)), `a question about ${subject}`);
    const question = this.questions.find(({ sql }) => subject.test(sql))!; // the line before has waited for it
    this.questions = this.questions.filter((other) => other !== question);
    return question;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener.close();
    for (const connection of this.#connections) this.#close(connection);
    await this.#accepting;
  }

  #close(connection: Deno.TcpConn): void {
    if (this.#connections.delete(connection)) connection.close();
  }

  async #accept(): Promise<void> {
    const served: Promise<void>[] = [];
    for await (const connection of this.#listener) {
      this.#connections.add(connection);
      served.push(this.#serve(connection).catch(() => {}).finally(() => this.#close(connection)));
    }
    await Promise.all(served);
  }

  async #serve(connection: Deno.TcpConn): Promise<void> {
    const buffer = new Uint8Array(65_536);
    await connection.read(buffer); // the start
    await connection.write(bytes(message("R", [0, 0, 0, 0]), message("Z", text("I"))));
    for (let read = await connection.read(buffer); read !== null; read = await connection.read(buffer)) {
      if (buffer[0] !== "Q".charCodeAt(0)) continue;
      const sql = new TextDecoder().decode(buffer.subarray(5, read - 1));
      const answer = (value: string) => void connection.write(answerOf(value)).catch(() => {});
      this.questions.push({ sql, answer });
    }
  }
}

const text = (value: string) => [...new TextEncoder().encode(value)];
const number = (value: number, size: 2 | 4) =>
  Array.from({ length: size }, (_, at) => (value >> (8 * (size - 1 - at))) & 255);
const bytes = (...parts: number[][]) => new Uint8Array(parts.flat());

function message(type: string, content: number[]): number[] {
  return [...text(type), ...number(content.length + 4, 4), ...content];
}

/** One row with the column `r`. */
function answerOf(value: string): Uint8Array<ArrayBuffer> {
  const column = [...text("r\0"), ...number(0, 4), ...number(0, 2), ...number(25, 4), ...number(65_535, 2)];
  return bytes(
    message("T", [...number(1, 2), ...column, ...number(65_535, 4), ...number(0, 2)]),
    message("D", [...number(1, 2), ...number(value.length, 4), ...text(value)]),
    message("C", text("SELECT 1\0")),
    message("Z", text("I")),
  );
}

const IS_STANDBY = /pg_is_in_recovery/;

Deno.test("a pool has all its connections after checks of new ones took too long", async () => {
  await using server = new ScriptedServer();
  const connection = await openPool(server.url, { leases: 3_000, writes: 3_000, reads: 3_000 });
  const ask = (sql: string) => connection.query(sql, undefined, "writes");
  const hung = [ask("select 'hangs'"), ask("select 'hangs'")].map((call) => call.catch(() => "failed"));
  for (const _ of hung) (await server.take(IS_STANDBY)).answer("false");
  for (const _ of hung) await server.take(/hangs/);
  const late = [ask("select 'late'"), ask("select 'late'")].map((call) => call.catch(({ message }) => message));

  // The connections of the first two calls are given up, and these get new ones, whose check takes long.
  assert.deepEqual(await Promise.all(hung), ["failed", "failed"]);
  const checks = [await server.take(IS_STANDBY), await server.take(IS_STANDBY)];
  for (const message of await Promise.all(late)) assert.match(message, /timeout/);
  for (const check of checks) check.answer("false");

  const next = Promise.all([ask("select 'next'"), ask("select 'next'")]);
  next.catch(() => {});
  for (let asked = 0; asked < 2;) {
    const { sql, answer } = await server.take(/next|pg_is_in_recovery/);
    answer("false");
    if (!IS_STANDBY.test(sql)) asked++;
  }
  await inTime(next, "both connections are used again");
  await connection.close();
});
