/** An app cannot be made. */
export class CreateError extends Error {
  override readonly name = "CreateError";
  /** The exit code of the command. */
  readonly exitCode: 1 | 2;

  /** Takes the message for the user. */
  constructor(message: string, exitCode: 1 | 2, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}
