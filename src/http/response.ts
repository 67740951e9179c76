import { UnknownJobError } from "../model/job/job_catalog.ts";
import {
  type ErrorCode,
  HoldfastError,
  type Issue,
  NotFoundError,
  StoreError,
  ValidationError,
} from "../model/error.ts";
import { isInstance } from "../values/unknown_values.ts";
import { HookError } from "./access/caller.ts";

/** The path exists, but not with this method. */
export class MethodNotAllowedError extends HoldfastError {
  /** The methods of the path. */
  readonly allowed: readonly string[];

  /** Creates a refusal whose message names the allowed methods. */
  constructor(allowed: readonly string[]) {
    super("method_not_allowed", `This path allows only ${allowed.join(" and ")}`);
    this.allowed = allowed;
  }
}

/** The response to a request that failed. */
export interface Refusal {
  /** The response for the client. */
  response: Response;
  /** The error that the response hides; `null` if it hides nothing. */
  hidden: { error: unknown } | null;
}

// The status of each code. 500 is for errors that must not reach clients.
const STATUS: Record<ErrorCode, number> = {
  invalid_request: 400,
  invalid_input: 400,
  forbidden: 403,
  cross_origin: 403,
  not_found: 404,
  method_not_allowed: 405,
  body_timeout: 408,
  conflict: 409,
  key_in_use: 409,
  run_ended: 409,
  wait_expired: 410,
  stream_reset: 410,
  body_too_large: 413,
  unsupported_encoding: 415,
  unknown_host: 421,
  too_many_streams: 429,
  internal: 500,
  unavailable: 503,
  lease_lost: 500,
  step_failed: 500,
  run_failed: 500,
  run_cancelled: 500,
  timeout: 500,
  non_retryable: 500,
  retry_after: 500,
};

/** The status of a code. */
export function statusOf(code: ErrorCode): number {
  return STATUS[code];
}

/** The codes that clients see. Those of errors inside a process they see as `internal`. */
export const CLIENT_CODES: readonly ErrorCode[] = (Object.keys(STATUS) as ErrorCode[]).filter((code) =>
  STATUS[code] !== 500 || code === "internal"
);

const RETRY_AFTER_SECONDS = 1;

/** Headers of every response for browsers: no page of another origin may embed it, and its type must not be sniffed. */
export const PROTECTIVE_HEADERS: Readonly<Record<string, string>> = {
  "cross-origin-resource-policy": "same-origin",
  "x-content-type-options": "nosniff",
};

/** The headers of every JSON response. */
export const JSON_HEADERS: Readonly<Record<string, string>> = { "cache-control": "no-store", ...PROTECTIVE_HEADERS };

/**
 * The response for a client that resumes an event stream that has ended: `EventSource` then stops reconnecting
 * (WHATWG HTML, 9.2.3).
 */
export function noMoreEvents(): Response {
  return new Response(null, { status: 204, headers: JSON_HEADERS });
}

/** Creates a JSON response. */
export function jsonResponse(body: unknown, status = 200, headers: Record<string, string> = {}): Response {
  return Response.json(body, { status, headers: { ...JSON_HEADERS, ...headers } });
}

/** The refusal of a run that does not exist. */
export function noSuchRun(): NotFoundError {
  return new NotFoundError("There is no such run");
}

/**
 * Creates the same `Response` as the handler's for an unknown run, a new one each time. A hook that throws it hides a
 * run: the caller cannot distinguish it from a run that does not exist.
 *
 * @example
 * ```ts
 * import { type HandlerAuth, notFound } from "@holdfast/jobs";
 *
 * const auth: HandlerAuth<{ org: string }> = {
 *   authenticate: (request) => ({ org: request.headers.get("x-org") ?? "" }), // in production, from a session
 *   onRunAccess({ org }, run) {
 *     if (run.labels.org !== org) throw notFound();
 *   },
 * };
 * ```
 */
export function notFound(): Response {
  return refuse(noSuchRun()).response;
}

/** Converts a thrown value to a response. The only place where a code becomes a status. */
export function refuse(thrown: unknown): Refusal {
  if (isInstance(thrown, Response)) return { response: thrown, hidden: null };
  if (isInstance(thrown, HookError)) return hide(thrown.cause, "internal", "Internal error");
  if (isInstance(thrown, StoreError) && thrown.code === "unavailable") {
    return hide(thrown, "unavailable", "The service cannot answer now");
  }
  if (!isInstance(thrown, HoldfastError) || STATUS[thrown.code] === 500) {
    return hide(thrown, "internal", "Internal error");
  }
  return { response: errorResponse(thrown.code, textOf(thrown), detailsOf(thrown)), hidden: hiddenCauseOf(thrown) };
}

/** Calls `onError` with an error that a response hides. What it throws is ignored. */
export async function report(
  error: unknown,
  request: Request,
  { onError }: { onError: (error: unknown, request: Request) => unknown },
): Promise<void> {
  try {
    await onError(error, request);
  } catch (failure) {
    console.error("onError failed:", failure);
  }
}

/** The message of a refusal as a client sees it. */
export function messageOf(error: HoldfastError): string {
  return isInstance(error, UnknownJobError) ? `There is no job "${error.jobName}"` : error.message;
}

/** The same where issues are sent as data: the message only counts them. */
function textOf(error: HoldfastError): string {
  if (!(error instanceof ValidationError) || error.issues.length === 0) return messageOf(error);
  const { summary, issues, issuesLeftOut } = error;
  const count = issues.length + issuesLeftOut;
  const leftOut = issuesLeftOut === 0 ? "" : `, of which ${issuesLeftOut} are left out`;
  return `${summary}: ${count} ${count === 1 ? "issue" : "issues"}${leftOut}`;
}

/** Hides the error: the messages of other libraries may contain paths, statements and secrets. */
function hide(error: unknown, code: ErrorCode, message: string): Refusal {
  return { response: errorResponse(code, message), hidden: { error } };
}

interface Details {
  issues?: readonly Issue[];
  issuesLeftOut?: number;
  headers?: Record<string, string>;
}

function detailsOf(error: HoldfastError): Details {
  if (error instanceof MethodNotAllowedError) return { headers: { allow: error.allowed.join(", ") } };
  if (!(error instanceof ValidationError) || error.issues.length === 0) return {};
  const { issues, issuesLeftOut } = error;
  return issuesLeftOut === 0 ? { issues } : { issues, issuesLeftOut };
}

/** The cause of a refusal by a schema that threw; only the host may see it. */
function hiddenCauseOf(error: HoldfastError): Refusal["hidden"] {
  const isThrownBySchema = error instanceof ValidationError && error.code === "invalid_input" && "cause" in error;
  return isThrownBySchema ? { error: error.cause } : null;
}

function errorResponse(code: ErrorCode, message: string, { headers, ...details }: Details = {}): Response {
  const body = { error: message, code, ...details };
  const response = jsonResponse(body, STATUS[code], headers);
  // What is left of the body would come as the next request.
  if (code === "body_timeout") response.headers.set("connection", "close");
  if (response.status === 503 || response.status === 429) {
    response.headers.set("retry-after", `${RETRY_AFTER_SECONDS}`);
  }
  return response;
}
