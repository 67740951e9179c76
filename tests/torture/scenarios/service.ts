import assert from "node:assert/strict";
import { Child, type Program } from "../../processes/child.ts";
import { inTime } from "../../processes/deadline.ts";

/** What a service answered. */
export interface Answer {
  /** The status code. */
  status: number;
  /** The JSON of the body. */
  // deno-lint-ignore no-explicit-any -- it is asked for its fields by who knows the route
  body: any;
  /** Whether it said when to try again. */
  hasRetryAfter: boolean;
  /** How long the client waited, in milliseconds. */
  ms: number;
}

/** What has happened in a service since it was last asked. */
export interface Facts {
  /** What `worker:error` told, and how often. */
  workerErrors: Record<string, number>;
  /** What clients were not told of, and how often. */
  hiddenErrors: Record<string, number>;
  /** How many leases were renewed. */
  renewals: number;
  /** The longest time for which its event loop stood still, in milliseconds; 0 if that was hardly any. */
  longestBlockMs: number;
}

/** What a service works with. */
export interface Files {
  /** The path of the database. */
  readonly database: string;
  /** The path of the ledger. */
  readonly ledgerPath: string;
}

/** The settings of the workers: leases end soon, so that taking a run over does not take long. */
export const WORKER = { staleThreshold: 1_500, heartbeatInterval: 300, pollingInterval: 200 };

const PROGRAM = new URL("serving_worker.ts", import.meta.url).href;

/** A process with an engine, a worker and the HTTP interface. */
export class Service implements AsyncDisposable {
  readonly #child: Child;
  readonly #origin: string;

  private constructor(child: Child, port: number) {
    this.#child = child;
    this.#origin = `http://127.0.0.1:${port}`;
  }

  /** Starts one, and throws if it does not come to serve. */
  static async start(files: Files, env: Program["env"] = {}): Promise<Service> {
    const started = await Service.tryToStart(files, env);
    assert.ok(started instanceof Service, `A service was to start: ${JSON.stringify(started)}`);
    return started;
  }

  /** Starts one, or answers why it has ended instead. */
  static async tryToStart(files: Files, env: Program["env"] = {}): Promise<Service | StartFailure> {
    const program: Program = { file: PROGRAM, env, isDetached: true };
    const child = new Child(program, files.database, files.ledgerPath, JSON.stringify(WORKER));
    try {
      const message = await child.hearAny("serving", "failed");
      if (message.type === "serving") return new Service(child, message.port as number);
      const { code } = await child.hasEnded();
      await child[Symbol.asyncDispose]();
      return { told: message.told as string, code: message.code as string | null, exitCode: code };
    } catch (error) {
      await child[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Its process id. */
  get pid(): number {
    return this.#child.pid;
  }

  /** Asks with `GET`. */
  get(path: string): Promise<Answer> {
    return this.#ask(`/api/jobs${path}`);
  }

  /** Asks with `POST`. */
  post(path: string, body: unknown): Promise<Answer> {
    return this.#ask(`/api/jobs${path}`, { method: "POST", body: JSON.stringify(body) });
  }

  /** What has happened since this was last asked. */
  async facts(): Promise<Facts> {
    return (await this.#ask("/facts")).body;
  }

  async #ask(path: string, init?: RequestInit): Promise<Answer> {
    const askedAt = performance.now();
    const response = await inTime(fetch(`${this.#origin}${path}`, init), `${path} was to be answered`);
    const body = await response.json();
    return {
      status: response.status,
      body,
      hasRetryAfter: response.headers.has("retry-after"),
      ms: performance.now() - askedAt,
    };
  }

  /** Kills it at once. */
  async kill(): Promise<void> {
    await this.#child.end("SIGKILL");
  }

  /** Lets it stop its engine and close its database. Answers how the process ended. */
  async stop(): Promise<Deno.CommandStatus> {
    await this.#child.tell("stop");
    return await this.#child.hasEnded();
  }

  /** Ends it, whatever it is doing. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#child[Symbol.asyncDispose]();
  }
}

/** Why a service did not come to serve. */
export interface StartFailure {
  /** The error, as a text. */
  told: string;
  /** The code of the error. */
  code: string | null;
  /** How the process ended. */
  exitCode: number;
}
