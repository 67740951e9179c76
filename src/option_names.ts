/**
 * Refuses an option that does not exist: a misspelt one would otherwise be ignored.
 *
 * @param known The names that exist, as keys.
 * @param subject What takes the options, for the message: `createEngine()`.
 * @throws {TypeError} There is another name among the options.
 */
export function checkOptionNames(options: object, known: { readonly [name: string]: true }, subject: string): void {
  for (const name of Object.keys(options)) {
    if (Object.hasOwn(known, name)) continue;
    throw new TypeError(`${subject} has no option "${name}"; it has ${Object.keys(known).join(", ")}`);
  }
}
