/** Finds the known name that differs from another only by case, `_` or `-`; `null` if there is none. */
export function similarNameFinder(known: readonly string[]): (name: string) => string | null {
  const byBareName = new Map(known.map((name) => [bareName(name), name]));
  return (name) => {
    const similar = byBareName.get(bareName(name)) ?? null;
    return similar === name ? null : similar;
  };
}

function bareName(name: string): string {
  return name.replaceAll(/[-_]/g, "").toLowerCase();
}
