import type { RecordName } from "../../model/hold.ts";
import { toFailure } from "../../model/to_failure.ts";
import { withoutOccurrence } from "../../values/name.ts";
import type { Divergence } from "./replay_guard.ts";

const MAX_NAMES = 3;

/** Explains a divergence: what is new, what was not asked for, and what to do. */
export function divergenceMessage({ isNew, thrown, unasked }: Divergence): string {
  if (isNew === null) return `the job ${ending(thrown)} before it asked for recorded ${listNames(unasked)}`;
  const what = `${showName(isNew)} is new, and the job has not asked for what this run has recorded: ${
    listNames(unasked)
  }`;
  const old = unasked.find(({ kind }) => kind === isNew.kind);
  const seeElse = "added, removed, or what the job decides outside of its steps";
  if (old === undefined) return `${what}. See ${seeElse}`;
  const [from, to] = [withoutOccurrence(old.name), withoutOccurrence(isNew.name)].map((name) => JSON.stringify(name));
  return `${what}. If ${from} was renamed, say changes: { renamed: { ${from}: ${to} } }; else see ${seeElse}`;
}

const REMEDY = /\. (If "(?:[^"\\]|\\.)*" was renamed, say .*|See added, removed, .*)$/s;

/** What such a message says to do; `null`: nothing. */
export function remedyOf(message: string): string | null {
  return REMEDY.exec(message)?.[1] ?? null;
}

function ending(thrown: { error: unknown } | null): string {
  if (thrown === null) return "returned";
  const { name, message } = toFailure(thrown.error);
  return `threw ${name}: ${message}`;
}

/** Names for a message: the first three, and how many more. */
export function listNames(names: readonly RecordName[]): string {
  const more = names.length > MAX_NAMES ? `, and ${names.length - MAX_NAMES} more` : "";
  return names.slice(0, MAX_NAMES).map(showName).join(", ") + more;
}

/** A name for a message: `step "charge"`. */
export function showName({ kind, name }: RecordName): string {
  return `${kind === "children" ? "child run" : kind} ${JSON.stringify(name)}`;
}
