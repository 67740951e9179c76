import type { Terminal } from "../terminal.ts";
import { escapeText, toJsonLine } from "../../values/escape_text.ts";
import { type Cell, type Color, type Column, layOutTable, paint } from "./table.ts";

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
    { columns, toRow, none }: { columns: readonly Column[]; toRow: (item: T) => readonly Cell[]; none: string },
  ): void {
    if (this.isJson) {
      for (const item of items) this.#terminal.print(toJsonLine(item));
    } else if (items.length === 0) this.#terminal.note(none);
    else this.table(columns, items.map(toRow));
  }

  /** Writes a table. */
  table(columns: readonly Column[], rows: readonly (readonly Cell[])[]): void {
    for (const line of layOutTable(columns, rows, this.#terminal)) this.#terminal.print(line);
  }

  /** Writes a line of text. */
  line(text: string, color: Color | null = null): void {
    this.#terminal.print(paint(escapeText(text), color, this.#terminal.hasColors));
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
