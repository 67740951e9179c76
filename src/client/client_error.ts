import type { Issue } from "../model/error.ts";

/** Why a call of a client failed. */
export class ClientError extends Error {
  /**
   * The `code` of the service's answer, such as `not_found` or `invalid_input`, or one of the client's own: `network`
   * (no answer), `timeout`, `run_failed`, `run_cancelled`, or `http_<status>` for an answer that is not the service's.
   */
  declare readonly code: string;
  /** The HTTP status of the answer; `null` if there was none. */
  declare readonly status: number | null;
  /** What a schema refused, and where. Empty for other errors. */
  declare readonly issues: readonly Issue[];
  /** After how many milliseconds the service asks to be called again; `null` if it did not say. */
  declare readonly retryAfter: number | null;

  /** Creates the error. */
  constructor(
    message: string,
    code: string,
    details?: { status?: number; issues?: readonly Issue[]; retryAfter?: number | null; cause?: unknown },
  ) {
    super(message);
    Object.assign(this, { name: "ClientError", code, status: null, issues: [], retryAfter: null }, details);
  }
}
