import type { Changes } from "../model/job/job_changes.ts";

/** Changes as they are written in the definition of a job. */
export function showChanges({ renamed = {}, removed = [], added = [] }: Changes): string {
  const pairs = Object.entries(renamed).map(([old, name]) => `${JSON.stringify(old)}: ${JSON.stringify(name)}`);
  const list = (names: readonly string[]) => `[${names.map((name) => JSON.stringify(name)).join(", ")}]`;
  const parts = [
    ...(pairs.length === 0 ? [] : [`renamed: { ${pairs.join(", ")} }`]),
    ...(removed.length === 0 ? [] : [`removed: ${list(removed)}`]),
    ...(added.length === 0 ? [] : [`added: ${list(added)}`]),
  ];
  return `{ ${parts.join(", ")} }`;
}
