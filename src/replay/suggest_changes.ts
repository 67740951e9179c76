import { baseOf } from "../execution/recorded_history.ts";
import type { Changes } from "../job_changes.ts";
import type { ReplayReport } from "./replay_report.ts";
import type { NeededChanges } from "./observed_replay.ts";

/** A run that would be held. */
export type Hold = Pick<ReplayReport, "outcome" | "code" | "isNew" | "unasked">;

// A run that needs more declarations than this one by one is the run of another job.
const MAX_DECLARATIONS = 20;

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
    if (left.code === null) return withoutEmpty(declared);
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

function candidatesFor({ code, isNew, unasked }: Hold, declared: NeededChanges): NeededChanges[] {
  const removed = [...declared.removed, ...new Set(unasked.map(({ name }) => baseOf(name).base))];
  if (code !== "input_refused" && isNew === null) return [{ ...declared, removed }];
  if (code !== "diverged" || isNew === null) return [];
  const name = baseOf(isNew.name).base;
  const old = unasked.find(({ kind }) => kind === isNew.kind);
  const renamed = old === undefined ? null : { ...declared.renamed, [baseOf(old.name).base]: name };
  return [
    ...(renamed === null ? [] : [{ ...declared, renamed }]),
    { ...declared, added: [...declared.added, name] },
    { ...declared, removed },
  ];
}

function isFurther({ outcome, code, isNew }: Hold, before: Hold): boolean {
  if (code === null) return outcome !== "fails";
  return code === "diverged" && isNew?.name !== before.isNew?.name;
}

function withoutEmpty({ renamed, removed, added }: NeededChanges): Changes {
  return {
    ...(Object.keys(renamed).length === 0 ? {} : { renamed }),
    ...(removed.length === 0 ? {} : { removed }),
    ...(added.length === 0 ? {} : { added }),
  };
}
