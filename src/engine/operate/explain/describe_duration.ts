const UNITS: readonly [ms: number, name: string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

/** A duration in words, with its two largest units: `2 h 29 min`, `4 min`, `41 s`, `350 ms`. A negative one is 0. */
export function describeDuration(ms: number): string {
  let left = Math.max(0, Math.round(ms));
  if (left < 1_000) return `${left} ms`;
  const parts: string[] = [];
  for (const [unit, name] of UNITS) {
    const count = Math.floor(left / unit);
    left -= count * unit;
    if (count > 0) parts.push(`${count} ${name}`);
    else if (parts.length > 0) break;
    if (parts.length === 2 || name === "s") break;
  }
  return parts.join(" ");
}
