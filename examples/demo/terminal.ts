import type { Progress } from "@holdfast/jobs";

const isTerminal = Deno.stdout.isTerminal();
const hasColour = isTerminal && !Deno.noColor;

const paint = (code: number) => (text: string) => hasColour ? `\x1b[${code}m${text}\x1b[0m` : text;

/** Text in bold, if standard output is a terminal that wants colours. */
export const bold = paint(1);
/** Text in a fainter shade, if standard output is a terminal that wants colours. */
export const dim = paint(2);
/** Text in red, if standard output is a terminal that wants colours. */
export const red = paint(31);
/** Text in green, if standard output is a terminal that wants colours. */
export const green = paint(32);

/** Shows how far something has come: in one line that changes, or in a line per 10 % where lines cannot change. */
export class ProgressBar {
  readonly #title: string;
  #percent = -1;
  #isOpen = false;

  /** Shows nothing yet. */
  constructor(title: string) {
    this.#title = title;
  }

  /** Shows how far it is now. */
  show({ current, total = current, message = "" }: Progress): void {
    const percent = Math.floor((100 * current) / total);
    const isNextTenth = Math.floor(percent / 10) > Math.floor(this.#percent / 10);
    this.#percent = percent;
    if (!isTerminal && !isNextTenth) return;
    const filled = Math.round((WIDTH * current) / total);
    const bar = green("█".repeat(filled)) + dim("░".repeat(WIDTH - filled));
    const line = `  ${bold(this.#title)}  ${bar} ${String(percent).padStart(3)} %  ${message}`;
    this.#isOpen = isTerminal;
    write(isTerminal ? `\r\x1b[2K${line}` : `${line}\n`);
  }

  /** Leaves what it shows, and goes on to the next line. */
  end(): void {
    if (this.#isOpen) write("\n");
    this.#isOpen = false;
  }
}

const WIDTH = 32;

function write(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text));
}
