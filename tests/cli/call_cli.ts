import { runCli } from "../../src/cli/run_cli.ts";
import type { Terminal } from "../../src/cli/terminal.ts";

/** What a command has written, and how it ended. */
export interface Called {
  /** Its exit code. */
  code: number;
  /** The lines of the result. */
  lines: string[];
  /** The lines of what is no result. */
  notes: string[];
  /** The lines of the result, as JSON. */
  // deno-lint-ignore no-explicit-any -- so that a test can look into it without ado
  json: any[];
  /** The questions that were asked. */
  questions: string[];
}

/** Where a command is called. */
export interface Place {
  /** The environment. */
  env?: { readonly [name: string]: string };
  /** The answer to every question; left out: there is nobody to ask. */
  answer?: boolean;
  /** The standard input. */
  input?: string;
  /** The width of the terminal; left out: the result goes to a file. */
  columns?: number;
  /** Whether the terminal has colors. */
  hasColors?: boolean;
  /** Ends the command. */
  abortSignal?: AbortSignal;
  /** Is called with each line of the result. */
  onLine?: (line: string) => void;
  /** Is called with what the last line has so far. */
  onText?: (text: string) => void;
}

/** Calls the command line. */
export async function callCli(args: readonly string[], place: Place = {}): Promise<Called> {
  const { env = {}, answer, input = "", columns = null, hasColors = false } = place;
  const { abortSignal = new AbortController().signal, onLine = () => {}, onText = () => {} } = place;
  const called: Omit<Called, "code" | "json"> = { lines: [], notes: [], questions: [] };
  let rest = "";
  const terminal: Terminal = {
    print: (line, end = "\n") => {
      rest += line;
      onText(rest);
      if (end === "") return;
      called.lines.push(rest);
      onLine(rest);
      rest = "";
    },
    note: (line) => void called.notes.push(line),
    columns,
    hasColors,
    env: (name) => env[name],
    readInput: () => Promise.resolve(input),
    confirm: answer === undefined ? null : (question) => {
      called.questions.push(question);
      return Promise.resolve(answer);
    },
    abortSignal,
  };
  const code = await runCli(args, terminal);
  const isJson = args.includes("--json");
  return { code, ...called, json: isJson ? called.lines.map((line) => JSON.parse(line)) : [] };
}
