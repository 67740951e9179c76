import assert from "node:assert/strict";

const SHOWN = 3;

/** Throws if there is any, with their number and the first few. `what` says what they have in common. */
export function assertNone(items: readonly unknown[], what: string): void {
  const shown = items.slice(0, SHOWN).map((item) => typeof item === "string" ? item : JSON.stringify(item)).join("; ");
  assert.equal(items.length, 0, `${what} (${items.length}): ${shown}`);
}
