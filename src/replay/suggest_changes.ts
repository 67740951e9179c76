import { withoutOccurrence } from "../values/name.ts";
import type { Changes } from "../model/job/job_changes.ts";
import type { ReplayReport } from "./replay_report.ts";
import type { NeededChanges } from "./observed_replay.ts";

/** A run that would be held. */
type Hold = Pick<ReplayReport, "outcome" | "code" | "isNew" | "unasked">;

// A run that needs more declarations than this one by one is the run of another job.
const MAX_DECLARATIONS = 20;
// How many old names are tried for a new one.
const MAX_RENAMES = 3;

/**
 * What to declare so that a run goes on. It is found by trying, so a step that was added is not taken for one that was
 * renamed: a job that asks for both names does not go on.
 *
 * @param tryWith Replays the run with these changes, besides those that the job declares already.
 * @returns `null`: the names do not tell.
 */
export async function suggestChanges(
  hold: Hold,
  tryWith: (changes: NeededChanges) => Promise<Hold>,
): Promise<Changes | null> {
  let declared: NeededChanges = { renamed: {}, removed: [], added: [] };
  let left = hold;
  for (let count = 0; count < MAX_DECLARATIONS; count++) {
    const found = await findNext(left, declared, tryWith);
    if (found === null) return null;
    ({ declared, left } = found);
    if (left.code === null) return withoutEmpty(await withoutSuperfluous(declared, tryWith));
  }
  return null;
}

/** The next declaration with which the run comes further, and where it comes to. */
async function findNext(
  hold: Hold,
  declared: NeededChanges,
  tryWith: (changes: NeededChanges) => Promise<Hold>,
): Promise<{ declared: NeededChanges; left: Hold } | null> {
  for (const candidate of candidatesFor(hold, declared)) {
    const left = await tryWith(candidate);
    if (isFurther(left, hold)) return { declared: candidate, left };
  }
  return null;
}

/** Leaves out what was declared as added, and is not needed beside the rest. */
async function withoutSuperfluous(
  declared: NeededChanges,
  tryWith: (changes: NeededChanges) => Promise<Hold>,
): Promise<NeededChanges> {
  let least = declared;
  if (Object.keys(declared.renamed).length === 0) return least;
  for (const name of declared.added) {
    const less = { ...least, added: least.added.filter((other) => other !== name) };
    if (goesOn(await tryWith(less))) least = less;
  }
  return least;
}

function candidatesFor({ code, isNew, unasked }: Hold, declared: NeededChanges): NeededChanges[] {
  const removed = [...declared.removed, ...new Set(unasked.map(({ name }) => withoutOccurrence(name)))];
  if (code !== "input_refused" && isNew === null) return [{ ...declared, removed }];
  if (code !== "diverged" || isNew === null) return [];
  const name = withoutOccurrence(isNew.name);
  const old = unasked.filter(({ kind }) => kind === isNew.kind).slice(0, MAX_RENAMES);
  return [
    ...old.map((old) => ({ ...declared, renamed: { ...declared.renamed, [withoutOccurrence(old.name)]: name } })),
    { ...declared, added: [...declared.added, name] },
    { ...declared, removed },
  ];
}

function goesOn({ outcome, code }: Hold): boolean {
  return code === null && outcome !== "fails";
}

function isFurther(hold: Hold, before: Hold): boolean {
  return goesOn(hold) || hold.code === "diverged" && hold.isNew?.name !== before.isNew?.name;
}

function withoutEmpty({ renamed, removed, added }: NeededChanges): Changes {
  return {
    ...(Object.keys(renamed).length === 0 ? {} : { renamed }),
    ...(removed.length === 0 ? {} : { removed }),
    ...(added.length === 0 ? {} : { added }),
  };
}

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
