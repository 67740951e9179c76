import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import type { Store } from "../../../src/store/store.ts";
import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import type { SqliteValue } from "../../../src/stores/sqlite/statement.ts";

/** A store that cleans up after itself when it is closed for the first time. */
export function afterClose<S extends Store>(store: S, cleanUp: () => unknown): S {
  const close = store.close.bind(store);
  let isClosed = false;
  store.close = store[Symbol.asyncDispose] = async () => {
    await close();
    if (!isClosed) await cleanUp();
    isClosed = true;
  };
  return store;
}

/**
 * Calls a test with the path of a database file that does not exist yet, in a folder that is removed afterwards. The path
 * has slashes on Windows, too: it goes into patterns and programs.
 */
export async function withFile(test: (path: string) => Promise<void>): Promise<void> {
  const folder = (await Deno.makeTempDir()).replaceAll("\\", "/");
  try {
    await test(`${folder}/jobs.db`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Runs a program in another process, with the arguments of `deno`. */
export async function runProgram(
  args: string[],
  program: string,
  env: Record<string, string> = {},
): Promise<{ stdout: string }> {
  const pipes = { stdin: "piped", stdout: "piped", stderr: "piped" } as const;
  await using child = new Deno.Command(Deno.execPath(), { args, env, ...pipes }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(program));
  await writer.close();
  const { stdout, stderr, success } = await child.output();
  assert.ok(success, new TextDecoder().decode(stderr));
  return { stdout: new TextDecoder().decode(stdout) };
}

/** A driver that says whether it is open, by one of its properties, and counts what is asked of it when it is closed. */
export class Closable implements SqliteDriver {
  readonly #database = new DatabaseSync(":memory:");
  open?: boolean;
  isOpen?: boolean;
  touched = 0;

  constructor(readonly property: "open" | "isOpen") {
    this[property] = true;
  }

  exec(sql: string): void {
    this.#touch();
    this.#database.exec(sql);
  }

  prepare(sql: string): ReturnType<SqliteDriver["prepare"]> {
    this.#touch();
    const statement = this.#database.prepare(sql);
    const call = (method: "run" | "get" | "all") => (...parameters: SqliteValue[]) => {
      this.#touch();
      return statement[method](...parameters);
    };
    return { run: call("run"), get: call("get"), all: call("all") as () => unknown[] };
  }

  /** Not fitting: it must not be called. */
  backup(): void {
    this.touched += 1;
  }

  close(): void {
    this[this.property] = false;
    this.#database.close();
  }

  #touch(): void {
    if (this[this.property] === false) this.touched += 1;
  }
}
