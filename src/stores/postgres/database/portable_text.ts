// Strings of a job may have characters that the database cannot keep: U+0000 and surrogates without their pair. Each is
// sent as U+E000, which is for private use, and its four hexadecimal digits, and so is U+E000 itself. Strings of JSON that
// are values have such characters escaped already.

// In the text of JSON: an escape of U+0000 or of a surrogate, or U+E000. It may find too much, which costs only time.
const SUSPECT = /\\u0000|\\ud[89a-f]|\ue000/;
const UNPORTABLE = /[\0\ue000]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const ESCAPED = /\ue000([0-9a-f]{4})/g;

/** Writes a parameter of a statement as JSON. */
export function writeParameter(value: unknown): string {
  const text = JSON.stringify(value);
  return SUSPECT.test(text) ? JSON.stringify(mapStrings(value, toPortable)) : text;
}

/** Reads the answer of a statement. */
export function readAnswer(text: string): unknown {
  const value = JSON.parse(text);
  return text.includes("\ue000") ? mapStrings(value, fromPortable) : value;
}

/** A string as the database keeps it. */
export function toPortable(text: string): string {
  return text.replaceAll(UNPORTABLE, (char) => `\ue000${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The string that the database keeps. */
function fromPortable(text: string): string {
  return text.replaceAll(ESCAPED, (_, code) => String.fromCharCode(parseInt(code, 16)));
}

function mapStrings(value: unknown, map: (text: string) => string): unknown {
  if (typeof value === "string") return map(value);
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, map));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [map(key), mapStrings(item, map)]));
}
