import type { Terminal } from "./terminal.ts";
import { escapeText, toJsonLine } from "../values/text.ts";
import { describeDuration } from "../values/duration.ts";
import type { Latency } from "../statistics/latencies.ts";

/**
 * A column: its title, what it shows of an item, and whether its cells are aligned to the right, or cut if the terminal is
 * too narrow.
 */
type Column<T> = readonly [title: string, toCell: (item: T) => Cell, style?: "right" | "cut"];

/** Writes results: as JSON for programs, or as text for people. */
export class Output {
  /** Whether results are JSON. */
  readonly isJson: boolean;
  readonly #terminal: Terminal;

  /** Writes to a terminal. */
  constructor(terminal: Terminal, isJson: boolean) {
    this.#terminal = terminal;
    this.isJson = isJson;
  }

  /** Writes an object: as one line of JSON, or as text. */
  object<T>(value: T, describe: (value: T) => void): void {
    if (this.isJson) this.#terminal.print(toJsonLine(value));
    else describe(value);
  }

  /** Writes a list: a line of JSON for each item, or a table. */
  list<T>(
    items: readonly T[],
    { columns, none }: { columns: readonly Column<T>[]; none: string },
  ): void {
    if (this.isJson) {
      for (const item of items) this.#terminal.print(toJsonLine(item));
    } else if (items.length === 0) this.#terminal.note(none);
    else this.table(items, columns);
  }

  /** Writes a table with a row for each item. */
  table<T>(items: readonly T[], columns: readonly Column<T>[]): void {
    for (const line of layOutTable(items, columns, this.#terminal)) this.#terminal.print(line);
  }

  /** Writes a line of text. */
  line(text: string, color: Color | null = null): void {
    this.#terminal.print(paint(escapeText(text), color, this.#terminal.hasColors));
  }

  /** Writes some text; what comes next is on the same line unless it ends with a line break. */
  text(text: string): void {
    const lines = text.split(/\r?\n/);
    const last = lines.pop()!; // split() returns one part at least
    for (const line of lines) this.line(line);
    if (last !== "") this.#terminal.print(escapeText(last), "");
  }

  /** Writes names with their values, one pair a line; a value that is `null` is left out. */
  facts(facts: readonly (readonly [name: string, value: string | null, color?: Color | null])[]): void {
    const shown = facts.filter(([, value]) => value !== null);
    const width = shown.reduce((widest, [name]) => Math.max(widest, name.length), 0);
    for (const [name, value, color = null] of shown) {
      const { hasColors } = this.#terminal;
      this.#terminal.print(
        `${paint(name.padEnd(width), "grey", hasColors)}  ${paint(escapeText(value!), color, hasColors)}`,
      );
    }
  }

  /** Writes a note, which is no result. */
  note(text: string): void {
    this.#terminal.note(escapeText(text));
  }
}

/** A color of a terminal. */
export type Color = "red" | "green" | "yellow" | "blue" | "grey" | "bold";

/** What is in a cell. */
export type Cell = string | { text: string; color: Color | null };

/** What a table has to fit into. */
interface TableSpace {
  /** The width of the terminal; `null`: any. */
  columns: number | null;
  /** Whether cells are colored. */
  hasColors: boolean;
}

const GAP = "  ";
const LEAST = 8;
const CODES: Record<Color, number> = { red: 31, green: 32, yellow: 33, blue: 34, grey: 90, bold: 1 };

/** Colors a string. */
export function paint(text: string, color: Color | null, hasColors: boolean): string {
  return color === null || !hasColors ? text : `\x1b[${CODES[color]}m${text}\x1b[0m`;
}

/** Lays out a table in lines; the first one has the titles. */
export function layOutTable<T>(items: readonly T[], columns: readonly Column<T>[], space: TableSpace): string[] {
  const head = columns.map(([title]): Cell => ({ text: title, color: "grey" }));
  const rows = items.map((item) => columns.map(([, toCell]) => toCell(item)));
  const cells = [head, ...rows].map((row) =>
    row.map((cell) =>
      typeof cell === "string" ? { text: escapeText(cell), color: null } : { ...cell, text: escapeText(cell.text) }
    )
  );
  const widths = columns.map((_, at) => cells.reduce((widest, row) => Math.max(widest, textWidth(row[at]!.text)), 0));
  if (space.columns !== null) shrink(widths, columns.map(([, , style]) => style === "cut"), space.columns);
  return cells.map((row) =>
    row.map(({ text, color }, at) => {
      const cut = cutText(text, widths[at]!);
      const padding = " ".repeat(Math.max(0, widths[at]! - textWidth(cut)));
      const isLast = at === columns.length - 1;
      const painted = paint(cut, color, space.hasColors);
      return columns[at]![2] === "right" ? padding + painted : isLast ? painted : painted + padding;
    }).join(GAP).trimEnd()
  );
}

/** Makes the widest of the columns that can be cut narrower, until the table fits. */
function shrink(widths: number[], areCut: readonly boolean[], space: number): void {
  const total = () => widths.reduce((sum, width) => sum + width, 0) + GAP.length * (widths.length - 1);
  while (total() > space) {
    let widest = -1;
    for (const [at, width] of widths.entries()) {
      if (areCut[at] && width > LEAST && (widest === -1 || width > widths[widest]!)) widest = at;
    }
    if (widest === -1) return;
    widths[widest]! -= 1;
  }
}

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const ZERO = /\p{Mn}|\p{Me}|\u200d|\ufe0f/u;

/** How many columns of a terminal a string takes, about. */
export function textWidth(text: string): number {
  let width = 0;
  for (const character of text) width += characterWidth(character);
  return width;
}

/** Cuts a string so that it fits into some columns; what was cut is replaced by `…`. */
export function cutText(text: string, columns: number): string {
  if (textWidth(text) <= columns) return text;
  let cut = "";
  let width = 1; // that of the mark
  for (const character of text) {
    width += characterWidth(character);
    if (width > columns) break;
    cut += character;
  }
  return `${cut}…`;
}

function characterWidth(character: string): number {
  if (character < "\u0300") return 1;
  if (ZERO.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

const STATUSES: { readonly [status: string]: readonly [shape: string, color: Color | null] } = {
  pending: ["◌", "grey"],
  leased: ["▶", "blue"],
  running: ["▶", "blue"],
  waiting: ["‖", "yellow"],
  completed: ["✓", "green"],
  failed: ["✕", "red"],
  cancelled: ["⊘", "grey"],
  live: ["●", "green"],
  stopping: ["◐", "yellow"],
  lost: ["✕", "red"],
};

/** A status as a shape and a word. */
export function statusCell(status: string): { text: string; color: Color | null } {
  const [shape, color] = STATUSES[status] ?? ["·", null];
  return { text: `${shape} ${status}`, color };
}

/** How long ago an instant was, or in how long it is. */
export function describeInstant(instant: string | null | undefined, now: number): string {
  if (instant === null || instant === undefined) return "";
  const ms = now - Date.parse(instant);
  return ms >= 0 ? `${describeDuration(ms)} ago` : `in ${describeDuration(-ms)}`;
}

/** An instant with its distance from now; `null` stays. */
export function describeBoth(instant: string | null | undefined, now: number): string | null {
  return instant === null || instant === undefined ? null : `${instant} (${describeInstant(instant, now)})`;
}

/** How long something took, or takes since its begin; empty before its begin. */
export function describeSpan(from: string | null | undefined, to: string | null | undefined, now: number): string {
  if (from === null || from === undefined) return "";
  return describeDuration((to === null || to === undefined ? now : Date.parse(to)) - Date.parse(from));
}

/** The median and the 95th percentile. */
export function describeLatency(latency: Latency | null): string {
  return latency === null ? "" : `${describeDuration(latency.p50)} / ${describeDuration(latency.p95)}`;
}

/** A share as a percentage. */
export function describeShare(share: number | null): Cell {
  return share === null ? "" : `${Math.round(share * 1_000) / 10} %`;
}

/** Labels as `key=value`. */
export function describeLabels(labels: { readonly [key: string]: string }): string {
  return Object.entries(labels).map(([key, value]) => `${key}=${value}`).join(" ");
}

/** A number with its noun: `1 run`, `3 runs`. */
export function countOf(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
