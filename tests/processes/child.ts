import { TextLineStream } from "./text_line_stream.ts";
import { inTime } from "./deadline.ts";

/** Something that a child program said: one line of JSON. */
export interface Message {
  /** What it is about. */
  type: string;
  /** What else it says. */
  [name: string]: unknown;
}

/** A program, and what it finds in its environment beside what is there already. */
export interface Program {
  /** The file, seen from this folder, or its URL. */
  file: string;
  /** Variables by name. */
  env?: Record<string, string>;
  /**
   * Whether Ctrl-C in the terminal does not reach it. It is for whoever has started it to hear, so the program has to end
   * when nobody is left to tell it anything.
   */
  isDetached?: boolean;
}

/** A program of this folder in a process of its own. Its other end is `parent.ts`. */
export class Child implements AsyncDisposable {
  readonly #program: string;
  readonly #process: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;
  readonly #messages: Message[] = [];
  readonly #reading: Promise<void>;
  #hasEnded = false;
  /** Those who wait for a message, or for the end. */
  readonly #waiting: (() => void)[] = [];

  /** Starts a program of this folder, or another one that is named by its URL. */
  constructor(program: string | Program, ...args: string[]) {
    const { file, env = {}, isDetached = false } = typeof program === "string" ? { file: program } : program;
    this.#program = file;
    this.#process = new Deno.Command(Deno.execPath(), {
      args: ["run", "--allow-all", "--frozen", new URL(file, import.meta.url).href, ...args],
      // What is killed cannot finish writing down which of its lines were covered.
      clearEnv: true,
      env: { ...without("DENO_COVERAGE_DIR", Deno.env.toObject()), ...env },
      detached: isDetached,
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

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** The first message of a type that was not heard yet. */
  async hear(type: string): Promise<Message> {
    return await this.hearAny(type);
  }

  /** The first message of any of these types that was not heard yet. */
  async hearAny(...types: string[]): Promise<Message> {
    const wanted = types.map((type) => `"${type}"`).join(" or ");
    return await inTime(this.#next(types, wanted), `${this.#program} was to say ${wanted}`);
  }

  async #next(types: readonly string[], wanted: string): Promise<Message> {
    while (true) {
      const position = this.#messages.findIndex((message) => types.includes(message.type));
      if (position >= 0) return this.#messages.splice(position, 1)[0]!;
      if (this.#hasEnded) throw new Error(`${this.#program} ended without saying ${wanted}`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Sends it a line. */
  async tell(line: string): Promise<void> {
    await this.#input.write(new TextEncoder().encode(`${line}\n`));
  }

  /** Sends it a signal, unless it has ended. */
  signal(signal: Deno.Signal): void {
    try {
      this.#process.kill(signal);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // which says that it has ended already
    }
  }

  /** Resolves when it has ended, with how it did. */
  get ended(): Promise<Deno.CommandStatus> {
    return this.#process.status;
  }

  /** Sends it a signal and waits until it has ended. Answers how. */
  async end(signal: Deno.Signal): Promise<Deno.CommandStatus> {
    this.signal(signal);
    const status = await inTime(this.#process.status, `${this.#program} was to end after ${signal}`);
    await this.#closePipes();
    return status;
  }

  /** Waits until it has ended by itself. Answers how. */
  async hasEnded(): Promise<Deno.CommandStatus> {
    const status = await inTime(this.#process.status, `${this.#program} was to end by itself`);
    await this.#closePipes();
    return status;
  }

  /** Ends it, whatever it is doing. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.signal("SIGKILL");
    await this.#process.status;
    await this.#closePipes();
  }

  async #closePipes(): Promise<void> {
    await this.#reading;
    await this.#input.abort().catch(() => {}); // it may be closed already
  }
}

function without(name: string, variables: Record<string, string>): Record<string, string> {
  const { [name]: _left, ...others } = variables;
  return others;
}
