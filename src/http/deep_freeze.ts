/** Freezes a value recursively, and returns it. For plain data without cycles. */
export function deepFreeze<T>(value: T): T {
  const pending: unknown[] = [value];
  while (pending.length > 0) {
    const next = pending.pop();
    if (typeof next !== "object" || next === null) continue;
    for (const inner of Object.values(Object.freeze(next))) pending.push(inner);
  }
  return value;
}
