/** The known name that differs from a name only by case, `_` or `-`; `null` if there is none. */
export function findSimilar(name: string, known: readonly string[]): string | null {
  const bare = bareName(name);
  return known.find((one) => one !== name && bareName(one) === bare) ?? null;
}

function bareName(name: string): string {
  return name.replaceAll(/[-_]/g, "").toLowerCase();
}
