import { StoreError } from "../../error.ts";

/**
 * Checks the version of the tables of a database.
 *
 * @param found 0: it has none.
 * @throws {StoreError} It is another one than this version of Holdfast has.
 */
export function checkVersion(found: number, known: number, subject: string): void {
  if (found === known) return;
  if (found === 0) {
    throw new StoreError(`${subject} has no tables of Holdfast: start an engine on it once, or give --migrate`);
  }
  throw new StoreError(
    `${subject} has tables of version ${found}, and this version of Holdfast knows version ${known}` +
      (found < known ? ": deploy this version, or give --migrate" : ": use a newer one"),
  );
}
