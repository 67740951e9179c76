import { type ErrorCode, HoldfastError, isInstance, type Issue, StoreError, ValidationError } from "../error.ts";
import { HookError } from "./hook.ts";

/** The path is known, but not with this method. */
export class MethodNotAllowedError extends HoldfastError {
  /** The methods that the path has. */
  readonly allowed: readonly string[];

  /** Makes a refusal that says which methods there are. */
  constructor(allowed: readonly string[]) {
    super("method_not_allowed", `This path is asked with ${allowed.join(" or ")}`);
    this.allowed = allowed;
  }
}

/** The answer to a request that was not carried out. */
export interface Refusal {
  /** What the client is told. */
  response: Response;
  /** What the client is not told; `null` if nothing is hidden. */
  hidden: { error: unknown } | null;
}

// Whoever adds a code decides here what clients are told: 500 is for what stays in the process.
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
  wait_expired: 410,
  body_too_large: 413,
  unsupported_encoding: 415,
  internal: 500,
  unavailable: 503,
  lease_lost: 500,
  step_failed: 500,
  run_failed: 500,
  run_cancelled: 500,
  timeout: 500,
  non_retryable: 500,
};

const RETRY_AFTER_SECONDS = 1;

/** What every answer in JSON has among its headers. */
export const RESPONSE_HEADERS = { "cache-control": "no-store", "x-content-type-options": "nosniff" } as const;

/** Answers with JSON. */
export function jsonResponse(body: unknown, status = 200, headers: Record<string, string> = {}): Response {
  return Response.json(body, {
    status,
    headers: { ...RESPONSE_HEADERS, ...headers },
  });
}

/** Makes an answer of whatever was thrown. The one place where a code becomes a status. */
export function refuse(thrown: unknown): Refusal {
  if (isInstance(thrown, Response)) return { response: thrown, hidden: null };
  if (isInstance(thrown, HookError)) return hide(thrown.cause, "internal", "Internal error");
  if (isInstance(thrown, StoreError) && thrown.code === "unavailable") {
    return hide(thrown, "unavailable", "The service cannot answer now");
  }
  if (!isInstance(thrown, HoldfastError) || STATUS[thrown.code] === 500) {
    return hide(thrown, "internal", "Internal error");
  }
  return { response: errorResponse(thrown.code, thrown.message, detailsOf(thrown)), hidden: hiddenCauseOf(thrown) };
}

/** The texts of other people's errors may tell of paths, statements and secrets. */
function hide(error: unknown, code: ErrorCode, message: string): Refusal {
  return { response: errorResponse(code, message), hidden: { error } };
}

interface Details {
  issues?: readonly Issue[];
  headers?: Record<string, string>;
}

function detailsOf(error: HoldfastError): Details {
  if (error instanceof MethodNotAllowedError) return { headers: { allow: error.allowed.join(", ") } };
  return error instanceof ValidationError && error.issues.length > 0 ? { issues: error.issues } : {};
}

/** A schema that threw has refused an input; only the host can be told why. */
function hiddenCauseOf(error: HoldfastError): Refusal["hidden"] {
  const isThrownBySchema = error instanceof ValidationError && error.code === "invalid_input" && "cause" in error;
  return isThrownBySchema ? { error: error.cause } : null;
}

function errorResponse(code: ErrorCode, message: string, { issues, headers }: Details = {}): Response {
  const body = { error: message, code, ...(issues === undefined ? {} : { issues }) };
  const response = jsonResponse(body, STATUS[code], headers);
  if (response.status === 503) response.headers.set("retry-after", `${RETRY_AFTER_SECONDS}`);
  return response;
}
