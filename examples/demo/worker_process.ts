import type { RunEvent } from "@holdfast/jobs";

const SCRIPT = new URL("../import_worker.ts", import.meta.url);

/** `import_worker.ts` in a process of its own. Disposing of one kills it, if it has not ended. */
export class WorkerProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;

  /** Starts it on the jobs of this database. */
  constructor(database: string) {
    this.#child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", SCRIPT.href, database],
      stdin: "piped",
      stdout: "piped",
    }).spawn();
  }

  /** The id of the process. */
  get pid(): number {
    return this.#child.pid;
  }

  /** What it tells, until it has ended. */
  async *events(): AsyncGenerator<RunEvent> {
    let unfinished = "";
    for await (const text of this.#child.stdout.pipeThrough(new TextDecoderStream())) {
      const lines = (unfinished + text).split("\n");
      // A process that was killed may leave half a line behind: it stays here.
      unfinished = lines.pop()!;
      for (const line of lines) yield JSON.parse(line);
    }
    await this.#child.status;
  }

  /** Kills it, without any chance to tidy up. */
  kill(): void {
    try {
      this.#child.kill("SIGKILL");
    } catch {
      // It has ended already.
    }
  }

  /** Asks it to end, and resolves when it has. */
  async stop(): Promise<void> {
    this.#child.kill("SIGTERM");
    await this.#child.status;
  }

  /** Kills it, and resolves when it has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.kill();
    await this.#child.status;
  }
}
