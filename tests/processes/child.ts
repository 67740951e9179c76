import { TextLineStream } from "./text_line_stream.ts";
import { inTime } from "./deadline.ts";

/** Something that a child program said: one line of JSON. */
export interface Message {
  /** What it is about. */
  type: string;
  /** What else it says. */
  [name: string]: unknown;
}

/** A program of this folder in a process of its own. Its other end is `parent.ts`. */
export class Child implements AsyncDisposable {
  readonly #program: string;
  readonly #process: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;
  readonly #messages: Message[] = [];
  readonly #reading: Promise<void>;
  #hasEnded = false;
  #wake: () => void = () => {};

  /** Starts a program of this folder. */
  constructor(program: string, ...args: string[]) {
    this.#program = program;
    this.#process = new Deno.Command(Deno.execPath(), {
      args: ["run", "--allow-all", "--no-lock", new URL(program, import.meta.url).href, ...args],
      // What is killed cannot finish writing down which of its lines were covered.
      clearEnv: true,
      env: without("DENO_COVERAGE_DIR", Deno.env.toObject()),
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#input = this.#process.stdin.getWriter();
    this.#reading = this.#read();
  }

  /** Its process id. */
  get pid(): number {
    return this.#process.pid;
  }

  async #read(): Promise<void> {
    for await (const line of this.#process.stdout.pipeThrough(new TextLineStream())) {
      this.#messages.push(JSON.parse(line));
      this.#wake();
    }
    this.#hasEnded = true;
    this.#wake();
  }

  /** The first message of a type that was not heard yet. */
  async hear(type: string): Promise<Message> {
    return await inTime(this.#next(type), `${this.#program} was to say "${type}"`);
  }

  async #next(type: string): Promise<Message> {
    while (true) {
      const position = this.#messages.findIndex((message) => message.type === type);
      if (position >= 0) return this.#messages.splice(position, 1)[0]!;
      if (this.#hasEnded) throw new Error(`${this.#program} ended without saying "${type}"`);
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
  }

  /** Sends it a line. */
  async tell(line: string): Promise<void> {
    await this.#input.write(new TextEncoder().encode(`${line}\n`));
  }

  /** Sends it a signal and waits until it has ended. Answers how. */
  async end(signal: Deno.Signal): Promise<Deno.CommandStatus> {
    this.#process.kill(signal);
    const status = await inTime(this.#process.status, `${this.#program} was to end after ${signal}`);
    await this.#reading;
    return status;
  }

  /** Ends it, whatever it is doing. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#process.kill("SIGKILL");
    } catch {
      // It has ended already.
    }
    await this.#process.status;
    await this.#reading;
    await this.#input.abort().catch(() => {});
  }
}

function without(name: string, variables: Record<string, string>): Record<string, string> {
  const { [name]: _left, ...others } = variables;
  return others;
}
