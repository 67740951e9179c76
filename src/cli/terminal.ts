import process from "node:process";
import type { Readable, Writable } from "node:stream";

/** Where a command reads from and writes to. */
export interface Terminal {
  /** Writes one line of the result, or, with an empty `end`, the beginning of one. */
  print(line: string, end?: "\n" | ""): void;
  /** Writes one line of what is no result: a note, a warning, why there is none. */
  note(line: string): void;
  /** The width of the terminal in characters; `null`: the result goes to a file or to another program. */
  readonly columns: number | null;
  /** Whether the result may have colors. */
  readonly hasColors: boolean;
  /** A variable of the environment. */
  env(name: string): string | undefined;
  /** All of the standard input. */
  readInput(): Promise<string>;
  /** Asks a question that is answered by yes or no; `null`: there is nobody to ask. */
  readonly confirm: ((question: string) => Promise<boolean>) | null;
  /** Fires when the user ends the command (Ctrl-C). */
  readonly abortSignal: AbortSignal;
}

/** The terminal of this process. */
export function processTerminal(): Terminal {
  const { stdin, stdout, stderr, env } = process;
  let interrupt: AbortController | null = null;
  stdout.on("error", (error: Error & { code?: unknown }) => {
    if (error.code === "EPIPE") process.exit(0); // the reader of the result has ended, as `head` does
    write(stderr, `Cannot write the result: ${error.message}\n`);
    process.exit(1);
  });
  stderr.on("error", () => {}); // nobody reads notes: the exit code says how it ended
  const isTerminal = stdout.isTTY === true;
  return {
    print: (line, end = "\n") => write(stdout, line + end),
    note: (line) => write(stderr, `${line}\n`),
    columns: isTerminal ? stdout.columns ?? 80 : null,
    hasColors: isTerminal && wantsColors(env),
    env: (name) => env[name],
    readInput: async () => {
      const decoder = new TextDecoder();
      let text = "";
      for await (const chunk of stdin) {
        text += typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true });
      }
      return text + decoder.decode();
    },
    confirm: stdin.isTTY === true ? (question) => askYesOrNo(question, stdin, stderr) : null,
    // Only a command that asks for it ends in its own time.
    get abortSignal() {
      if (interrupt === null) {
        const controller = interrupt = new AbortController();
        process.once("SIGINT", () => controller.abort());
      }
      return interrupt.signal;
    },
  };
}

/** Writes to a stream, which emits why it cannot. For a file, Deno throws that instead. */
function write(stream: Writable, text: string): void {
  try {
    stream.write(text);
  } catch (error) {
    stream.emit("error", error);
  }
}

/** Whether a terminal with this environment is to be sent colors (https://no-color.org). */
export function wantsColors(env: { readonly [name: string]: string | undefined }): boolean {
  return (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb";
}

/** Asks a question; Ctrl-C and Ctrl-D instead of an answer are no. */
export async function askYesOrNo(question: string, input: Readable, output: Writable): Promise<boolean> {
  const { createInterface } = await import("node:readline");
  const lines = createInterface({ input, output });
  const answer = await new Promise<string>((resolve) => {
    const endWithout = () => {
      write(output, "\n");
      resolve("");
    };
    lines.once("close", endWithout);
    lines.question(`${question} [y/N] `, (text) => {
      lines.off("close", endWithout);
      resolve(text);
    });
  });
  lines.close();
  return /^y(es)?$/i.test(answer.trim());
}
