/**
 * Makes sure that nobody stays suspended if this process dies, whatever it dies of. A worker ends by itself when its
 * driver is gone, but one that is suspended cannot notice.
 */
export class Resurrection implements AsyncDisposable {
  readonly #process: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;

  /** Begins to watch over this process. */
  constructor() {
    // `tail` answers when its input ends, which this process holds. A SIGCONT harms nobody: if by then another process
    // has one of the ids, it goes on as it did. What ends the driver is for the driver to hear. All are remembered that
    // could be alive, however many workers there are.
    this.#process = new Deno.Command("sh", {
      args: ["-c", "trap '' INT TERM; tail -n 1000 | xargs kill -CONT"],
      stdin: "piped",
      stdout: "null",
      stderr: "null",
    }).spawn();
    this.#input = this.#process.stdin.getWriter();
  }

  /** Remembers a process that is about to be suspended. */
  async note(pid: number): Promise<void> {
    await this.#input.write(new TextEncoder().encode(`${pid}\n`));
  }

  /** Lets everybody go on who was noted lately. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#input.close();
    await this.#process.status;
  }
}
