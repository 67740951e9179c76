import { isObject, kindOf } from "./unknown_values.ts";

/**
 * Refuses an option that does not exist: a misspelt one would otherwise be ignored.
 *
 * @param known An object whose keys are the valid names.
 * @param subject What takes the options, for the message: `createEngine()`.
 * @throws {TypeError} The options are not an object, or have another name.
 */
export function checkOptionNames(options: object, known: object, subject: string): void {
  const names = () => Object.keys(known).join(", ");
  if (!isObject(options)) {
    throw new TypeError(`${subject} takes an object with ${names()}, not ${kindOf(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(known, name)) throw new TypeError(`${subject} has no option "${name}"; it has ${names()}`);
  }
}

/** The words of a string. */
export type Words<Text extends string, Found extends string = never> = Text extends `${infer Word} ${infer Rest}`
  ? Words<Rest, Found | Word>
  : Found | Text;

/** Says what a list of names lacks, or has too many; nothing if it is complete. */
type Checked<Name extends string, Listed extends string> = [Exclude<Name, Listed>, Exclude<Listed, Name>] extends
  [never, never] ? unknown
  : { missing: Exclude<Name, Listed>; unknown: Exclude<Listed, Name> };

/**
 * An object whose keys are the names of a type, such as those of its members. They are listed with spaces between; the
 * type checker refuses a list that lacks one, or has another.
 *
 * @example
 * ```ts ignore
 * const OPTIONS = namesOf<keyof RetryPolicy>()("limit delay factor maxDelay jitter");
 * ```
 */
export function namesOf<Name extends string>(): <const Text extends string>(
  ...lines: (Text & Checked<Name, Words<Text>>)[]
) => Readonly<Record<Name, true>> {
  return (...lines) => Object.fromEntries(lines.join(" ").split(" ").map((name) => [name, true])) as Record<Name, true>; // the type of `lines`
}
