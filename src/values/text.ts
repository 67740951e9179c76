/**
 * Makes any string safe to store and show: well-formed Unicode, without U+0000 (SQLite ends a string there), and cut
 * after `maxLength` characters.
 */
export function tidyText(text: string, maxLength: number): string {
  const cut = text.length > maxLength ? `${text.slice(0, maxLength)}… (cut)` : text;
  return cut.toWellFormed().replaceAll("\0", "\uFFFD");
}

/** The longest prefix of a string that takes at most a number of bytes of UTF-8. */
export function cutBytes(text: string, maxBytes: number): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes));
  return text.slice(0, read);
}
