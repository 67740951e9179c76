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
