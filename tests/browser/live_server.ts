import { inTime } from "../processes/deadline.ts";
import { TextLineStream } from "../processes/text_line_stream.ts";

const EXAMPLES = new URL("../../examples/", import.meta.url);

/** `examples/live_server.ts`, or another example that takes the same arguments, in a process of its own. */
export class LiveServer implements AsyncDisposable {
  readonly #process: Deno.ChildProcess;
  readonly #lines: ReadableStream<string>;

  /** Starts it on a database file, and on any free port unless one is given. */
  constructor(database: string, port = "0", example = "live_server.ts") {
    const { DENO_COVERAGE_DIR: _left, ...env } = Deno.env.toObject(); // it will be killed, and could not finish writing
    this.#process = new Deno.Command(Deno.execPath(), {
      args: ["run", "--allow-all", "--no-lock", new URL(example, EXAMPLES).href, port, database],
      clearEnv: true,
      env,
      stdout: "piped",
    }).spawn();
    this.#lines = this.#process.stdout.pipeThrough(new TextLineStream());
  }

  /** Resolves with the address of its page when it listens. Can be asked once. */
  async listens(): Promise<string> {
    return await inTime(this.#readUrl(), "the server was to listen");
  }

  async #readUrl(): Promise<string> {
    for await (const line of this.#lines.values({ preventCancel: true })) {
      const url = /http:\S+/.exec(line)?.[0];
      if (url !== undefined) return url;
    }
    throw new Error("The server ended without listening");
  }

  /** Kills it (`kill -9`). */
  async kill(): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#process.status;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill().catch(() => {}); // it has been killed already
    await this.#lines.cancel();
  }
}
