/** Where a command reads from and writes to. */
export interface Terminal {
  /** Writes one line of the result. */
  print(line: string): void;
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
