/** Names a value of an unknown kind for a message: `a string`, `null`, `an object`, `a Promise`. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value !== "object") return `a ${typeof value}`;
  const kind = Object.prototype.toString.call(value).slice("[object ".length, -1);
  return kind === "Object" ? "an object" : `${/^[AEIO]/.test(kind) ? "an" : "a"} ${kind}`;
}
