/** Freezes a value with everything in it, however deep, and answers it. For plain data without cycles. */
export function deepFreeze<T>(value: T): T {
  const pending: unknown[] = [value];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (typeof next !== "object" || next === null) continue;
    Object.freeze(next);
    pending.push(...Object.values(next));
  }
  return value;
}
