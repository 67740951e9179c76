import { kindOf } from "./kind_of.ts";

/**
 * Refuses an option that does not exist: a misspelt one would otherwise be ignored.
 *
 * @param known An object whose keys are the valid names.
 * @param subject What takes the options, for the message: `createEngine()`.
 * @throws {TypeError} The options are not an object, or have another name.
 */
export function checkOptionNames(options: object, known: object, subject: string): void {
  const names = () => Object.keys(known).join(", ");
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`${subject} takes an object with ${names()}, not ${kindOf(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(known, name)) throw new TypeError(`${subject} has no option "${name}"; it has ${names()}`);
  }
}
