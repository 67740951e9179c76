import { escapeText } from "../../values/text.ts";

/** A color of a terminal. */
export type Color = "red" | "green" | "yellow" | "blue" | "grey" | "bold";

/** What is in a cell. */
export type Cell = string | { text: string; color: Color | null };

/** A column of a table. */
export interface Column {
  /** Its title. */
  title: string;
  /** Whether its cells are aligned to the right. */
  isRight?: boolean;
  /** Whether its cells are cut if the terminal is too narrow. */
  isCut?: boolean;
}

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
export function layOutTable(
  columns: readonly Column[],
  rows: readonly (readonly Cell[])[],
  space: TableSpace,
): string[] {
  const head = columns.map(({ title }): Cell => ({ text: title, color: "grey" }));
  const cells = [head, ...rows].map((row) =>
    row.map((cell) =>
      typeof cell === "string" ? { text: escapeText(cell), color: null } : { ...cell, text: escapeText(cell.text) }
    )
  );
  const widths = columns.map((_, at) => cells.reduce((widest, row) => Math.max(widest, textWidth(row[at]!.text)), 0));
  if (space.columns !== null) shrink(widths, columns, space.columns);
  return cells.map((row) =>
    row.map(({ text, color }, at) => {
      const cut = cutText(text, widths[at]!);
      const padding = " ".repeat(Math.max(0, widths[at]! - textWidth(cut)));
      const isLast = at === columns.length - 1;
      const painted = paint(cut, color, space.hasColors);
      return columns[at]!.isRight ? padding + painted : isLast ? painted : painted + padding;
    }).join(GAP).trimEnd()
  );
}

/** Makes the widest of the columns that can be cut narrower, until the table fits. */
function shrink(widths: number[], columns: readonly Column[], space: number): void {
  const total = () => widths.reduce((sum, width) => sum + width, 0) + GAP.length * (widths.length - 1);
  while (total() > space) {
    let widest = -1;
    for (const [at, width] of widths.entries()) {
      if (columns[at]!.isCut && width > LEAST && (widest === -1 || width > widths[widest]!)) widest = at;
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
