import type { Terminal } from "../terminal.ts";
import { escapeText, toJsonLine } from "../../values/text.ts";
import { type Cell, type Color, layOutTable, paint } from "./table.ts";

/**
 * A column: its title, what it shows of an item, and whether its cells are aligned to the right, or cut if the terminal is
 * too narrow.
 */
export type ShownColumn<T> = readonly [title: string, toCell: (item: T) => Cell, style?: "right" | "cut"];

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
    { columns, none }: { columns: readonly ShownColumn<T>[]; none: string },
  ): void {
    if (this.isJson) {
      for (const item of items) this.#terminal.print(toJsonLine(item));
    } else if (items.length === 0) this.#terminal.note(none);
    else this.table(items, columns);
  }

  /** Writes a table with a row for each item. */
  table<T>(items: readonly T[], columns: readonly ShownColumn<T>[]): void {
    const heads = columns.map(([title, , style]) => ({ title, isRight: style === "right", isCut: style === "cut" }));
    const rows = items.map((item) => columns.map(([, toCell]) => toCell(item)));
    for (const line of layOutTable(heads, rows, this.#terminal)) this.#terminal.print(line);
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
