import { CreateError } from "./create_error.ts";

const MAX_LENGTH = 64;
const NAME = /^[a-z][a-z0-9]*(?:-[a-z0-9]+)*$/;
// Windows has no files with these names: https://learn.microsoft.com/windows/win32/fileio/naming-a-file
const DEVICE = /^(?:con|prn|aux|nul|com[0-9]|lpt[0-9])$/;

/**
 * Checks the name of an app: it is the name of its folder, of its npm package and of its container image.
 *
 * @throws {CreateError} It is not allowed.
 */
export function checkAppName(name: string): void {
  if (name.length <= MAX_LENGTH && NAME.test(name) && !DEVICE.test(name)) return;
  throw new CreateError(
    `"${name}" cannot be the name of an app: use lower-case letters, digits and dashes between them, such as my-app`,
    2,
  );
}
