import { HoldfastError, ValidationError } from "../../model/error.ts";
import { isInstance } from "../../values/unknown_values.ts";
import type { Host } from "../../model/host.ts";
import type { Json } from "../../values/json.ts";

/** Options of {@linkcode readJson}. */
export interface ReadJsonOptions {
  /** The size and depth limits. */
  limits: { maxBodyBytes: number; maxJsonDepth: number };
  /** The timer for the time limit. */
  host: Host;
  /** Whether a body that is empty is `{}`. Default: it is refused. */
  isOptional?: boolean;
}

const MAX_BODY_MS = 10_000;
const READ_BEFORE =
  "The body is empty, unlike its Content-Length: was it read before the handler was called, such as by express.json()?";

/**
 * Reads the body of a request as JSON in UTF-8, regardless of its Content-Type: `curl -d` sends that of a form.
 *
 * @throws {ValidationError} It is not JSON, is nested too deeply, or has a number that is too large.
 * @throws {HoldfastError} `unsupported_encoding`, `body_too_large` or `body_timeout`.
 */
export async function readJson(request: Request, { limits, host, isOptional = false }: ReadJsonOptions): Promise<Json> {
  checkEncoding(request.headers.get("content-encoding"));
  const text = decode(await readBytes(request, limits.maxBodyBytes, host));
  if (text === "" && Number(request.headers.get("content-length")) > 0) throw new ValidationError(READ_BEFORE);
  if (isOptional && text === "") return {};
  return parseJson(text, limits.maxJsonDepth);
}

function checkEncoding(encoding: string | null): void {
  if (encoding === null || encoding.trim().toLowerCase() === "identity") return;
  throw new HoldfastError("unsupported_encoding", "The body must have no Content-Encoding");
}

/**
 * Reads the body of a request as it was sent, within 10 seconds.
 *
 * @throws {ValidationError} It was cut off.
 * @throws {HoldfastError} `body_too_large` or `body_timeout`.
 */
export async function readBytes(request: Request, maxBytes: number, host: Host): Promise<Uint8Array<ArrayBuffer>> {
  if (request.bodyUsed) throw new TypeError("The body of the request was read before the handler was called");
  if (request.body === null) return new Uint8Array();
  if (Number(request.headers.get("content-length")) > maxBytes) {
    giveUp(request.body);
    throw tooLarge(maxBytes);
  }
  const reader = request.body.getReader();
  let isLate = false;
  const cancelTimer = host.schedule(MAX_BODY_MS, () => {
    isLate = true;
    giveUp(reader); // ends a read that is waiting
  });
  try {
    const bytes = await readAll(reader, maxBytes);
    if (!isLate) return bytes;
  } catch (error) {
    giveUp(reader);
    if (!isLate) throw isInstance(error, HoldfastError) ? error : unreadable(error);
  } finally {
    cancelTimer();
  }
  throw new HoldfastError("body_timeout", `The body took more than ${MAX_BODY_MS} ms`);
}

async function readAll(
  reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>,
  maxBytes: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  while (true) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > maxBytes) throw tooLarge(maxBytes);
    parts.push(value);
  }
  if (parts.length === 1) return parts[0]!;
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.byteLength;
  }
  return bytes;
}

/** Decodes UTF-8. A byte order mark is kept, and is refused as JSON. */
export function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw unreadable(cause);
  }
}

function giveUp(body: { cancel(): Promise<void> }): void {
  body.cancel().catch(() => {}); // the sender may have disconnected
}

function tooLarge(maxBytes: number): HoldfastError {
  return new HoldfastError("body_too_large", `The body must have at most ${maxBytes} bytes`);
}

function unreadable(cause: unknown): ValidationError {
  return new ValidationError("The body was cut off, or is not UTF-8", { cause });
}

/**
 * Parses the JSON of a body.
 *
 * @throws {ValidationError} It is not JSON, is nested too deeply, or has a number that is too large.
 */
export function parseJson(text: string, maxDepth: number): Json {
  let value: Json;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new ValidationError("The body is not JSON", { cause });
  }
  checkJson(value, maxDepth);
  return value;
}

/** Checks a value as deep as it may be, so that no depth overflows the stack. */
function checkJson(value: Json, maxDepth: number, depth = 0): void {
  // JSON has no Infinity, but `1e999` is parsed as one.
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new ValidationError("The body has a number that is too large");
  }
  if (typeof value !== "object" || value === null) return;
  if (depth === maxDepth) throw new ValidationError(`The body must be nested at most ${maxDepth} levels deep`);
  if (Array.isArray(value)) { for (const item of value) checkJson(item, maxDepth, depth + 1); }
  else for (const key in value) checkJson(value[key]!, maxDepth, depth + 1); // JSON has no inherited members
}
