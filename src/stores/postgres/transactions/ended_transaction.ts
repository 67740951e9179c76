import { errorMessage } from "../../../values/unknown_values.ts";
import { StoreError } from "../../../model/error.ts";

/** How a server says that a statement has ended a transaction, in our queries and in `fn.join()`. */
export const ENDED = "The transaction was ended by one of its statements";

/** Whether a statement of ours was refused since one of the function had ended the transaction. */
export function isEnded(error: unknown): boolean {
  return errorMessage(error).includes(ENDED);
}

/** The error for the caller: nobody can say which statement it was. */
export function endedError(cause: unknown): StoreError {
  return new StoreError(
    `${ENDED}: COMMIT, ROLLBACK, or the transaction() of an ORM. Holdfast has recorded nothing; what was written before ` +
      "a COMMIT, or after the end, is committed",
    { code: "internal", cause },
  );
}
