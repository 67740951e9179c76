/**
 * Makes any string safe to store and show: well-formed Unicode, without U+0000 (SQLite ends a string there), and cut
 * after `maxLength` characters.
 */
export function tidyText(text: string, maxLength: number): string {
  const cut = text.length > maxLength ? `${text.slice(0, maxLength)}… (cut)` : text;
  return cut.toWellFormed().replaceAll("\0", "\uFFFD");
}

const encoder = new TextEncoder();

/** How many bytes a string takes in UTF-8. */
export function byteLength(text: string): number {
  return encoder.encode(text).length;
}

/** The longest prefix of a string that takes at most a number of bytes of UTF-8. */
export function cutBytes(text: string, maxBytes: number): string {
  const { read } = encoder.encodeInto(text, new Uint8Array(maxBytes));
  return text.slice(0, read);
}

// Control characters, marks that change the direction of what follows, and line breaks of Unicode.
// deno-lint-ignore no-control-regex -- that is what it looks for
const DANGEROUS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** Writes control characters as escapes, so that no name or value can move the cursor or hide what is printed. */
export function escapeText(text: string): string {
  return text.replaceAll(DANGEROUS, (character) => {
    const short = SHORT.get(character);
    return short ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

/** The same for several lines. */
export function escapeLines(text: string): string {
  return text.split("\n").map(escapeText).join("\n");
}

const SHORT = new Map([["\n", "\\n"], ["\r", "\\r"], ["\t", "\\t"]]);

/** A value as JSON on one line, in which control characters are escapes. */
export function toJsonLine(value: unknown): string {
  return escapeText(JSON.stringify(value)); // outside of strings JSON has none on one line
}

/** A text with a capital as its first letter. */
export function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
