/** The command was called in a wrong way. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
