import { HoldfastError, type Issue, ValidationError } from "../../model/error.ts";
import { isInstance, propertyOf } from "../../values/unknown_values.ts";
import type { Json } from "../../values/json.ts";
import type { McpCall } from "../handler_options.ts";
import { readJson } from "../requests/read_json.ts";
import { jsonResponse, messageOf, PROTECTIVE_HEADERS } from "../response.ts";

/** The version without sessions: each request says everything. */
export const STATELESS = "2026-07-28";
/** The versions that begin with `initialize`, newest first. */
export const WITH_HANDSHAKE: readonly string[] = ["2025-11-25", "2025-06-18", "2025-03-26"];
const SUPPORTED = [STATELESS, ...WITH_HANDSHAKE];

/** The extension of tasks. */
export const TASKS = "io.modelcontextprotocol/tasks";

/** The codes of JSON-RPC, and those of MCP. */
export const CODES = {
  parse: -32700,
  request: -32600,
  method: -32601,
  params: -32602,
  headers: -32020,
  capability: -32021,
  version: -32022,
} as const;

/** The answer to a request is an error of the protocol. */
export class RpcError extends Error {
  /** The code of JSON-RPC. */
  readonly code: number;
  /** What else a client receives. */
  readonly data: Json | undefined;

  constructor(code: keyof typeof CODES, message: string, data?: Json) {
    super(message);
    this.code = CODES[code];
    this.data = data;
  }
}

/** An object of JSON. */
export type JsonObject = { [name: string]: Json };

/** A request or a notification. */
export interface RpcRequest {
  /** `null`: it is a notification, which is not answered. */
  id: string | number | null;
  /** The method. */
  method: string;
  /** The parameters. */
  params: JsonObject;
  /** Whether it is of the version without sessions. */
  isStateless: boolean;
  /** What the client says that it can do. */
  capabilities: JsonObject;
}

/** Whether a client takes tasks. */
export function takesTasks({ capabilities }: RpcRequest): boolean {
  return isObject(propertyOf(capabilities.extensions, TASKS));
}

/** Whether something is an object of JSON. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What answers a request, by method. */
export type Methods = Readonly<Record<string, (request: RpcRequest) => JsonObject | Promise<JsonObject>>>;

/**
 * Answers a request of JSON-RPC.
 *
 * @param methodsOf The methods of the version without sessions, and those of the others.
 * @throws {Response} A hook refuses.
 * @throws {unknown} What is no error of the protocol.
 */
export async function answerRpc(
  call: McpCall,
  methodsOf: (isStateless: boolean) => Methods,
): Promise<Response> {
  let id: RpcRequest["id"] = null;
  let isStateless = true;
  try {
    const message = await readMessage(call);
    id = readId(message);
    const { method, params = {} } = message;
    if (message.jsonrpc !== "2.0" || typeof method !== "string") {
      throw new RpcError("request", "The body must be a request of JSON-RPC 2.0");
    }
    if (!isObject(params)) throw new RpcError("params", "params must be an object");
    isStateless = readVersion(call.request.headers, params) === STATELESS;
    if (id === null) return new Response(null, { status: 202, headers: PROTECTIVE_HEADERS });
    const served = methodsOf(isStateless);
    // Before anything else is checked: clients look for methods by their code.
    if (!Object.hasOwn(served, method)) throw new RpcError("method", `There is no method "${method}"`);
    const capabilities = isStateless ? checkStateless(call.request.headers, method, params) : {};
    const result = await served[method]!({ id, method, params, isStateless, capabilities });
    return jsonResponse({ jsonrpc: "2.0", id, result });
  } catch (error) {
    if (!isInstance(error, RpcError)) throw error;
    const { code, message, data } = error;
    const body = { jsonrpc: "2.0", id, error: { code, message, ...(data === undefined ? {} : { data }) } };
    return jsonResponse(body, statusOf(code, isStateless || id === null));
  }
}

/** Clients of sessions take any other status than 200 as a failure of the connection. */
function statusOf(code: number, isStrict: boolean): number {
  if (code === CODES.headers || code === CODES.version) return 400;
  if (!isStrict) return 200;
  return code === CODES.method ? 404 : 400;
}

async function readMessage({ request, limits, host }: McpCall): Promise<JsonObject> {
  let body: Json;
  try {
    body = await readJson(request, { limits, host });
  } catch (error) {
    if (isInstance(error, ValidationError)) throw new RpcError("parse", error.message);
    throw error;
  }
  if (Array.isArray(body)) throw new RpcError("request", "Batches are not served");
  if (!isObject(body)) throw new RpcError("request", "The body must be an object");
  return body;
}

function readId(message: JsonObject): RpcRequest["id"] {
  if (!Object.hasOwn(message, "id")) return null;
  const { id } = message;
  if (typeof id === "string" || Number.isSafeInteger(id)) return id as string | number;
  throw new RpcError("request", "id must be a string or an integer");
}

const VERSION = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";

/** The version of a request: older clients say none before their handshake. */
function readVersion(headers: Headers, params: JsonObject): string {
  const sent = headers.get("mcp-protocol-version");
  const inBody = propertyOf(params._meta, VERSION);
  if (sent === null && inBody === undefined) return WITH_HANDSHAKE.at(-1)!;
  if (inBody !== undefined && sent !== inBody) {
    throw new RpcError("headers", `The header MCP-Protocol-Version must be that of _meta["${VERSION}"]`);
  }
  if (SUPPORTED.includes(sent!)) return sent!;
  throw new RpcError("version", `The version ${sent} is not served`, { supported: SUPPORTED, requested: sent });
}

/** What the headers mirror, by method: the member of the parameters that `Mcp-Name` has. */
const NAMED: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId",
};

/** Checks the headers and `_meta` of a request without a session. Returns what the client can do. */
function checkStateless(headers: Headers, method: string, params: JsonObject): JsonObject {
  const name = NAMED[method] === undefined ? undefined : params[NAMED[method]];
  const mirrored = { "Mcp-Method": method, ...(typeof name === "string" ? { "Mcp-Name": name } : {}) };
  for (const [header, value] of Object.entries(mirrored)) {
    if (decodeValue(headers.get(header)) === value) continue;
    throw new RpcError("headers", `The header ${header} must be the same as in the body`);
  }
  const { _meta: meta } = params;
  if (typeof propertyOf(meta, VERSION) !== "string") {
    throw new RpcError("params", `params._meta must have "${VERSION}"`);
  }
  const capabilities = propertyOf(meta, CAPABILITIES);
  if (!isObject(capabilities)) throw new RpcError("params", `params._meta must have "${CAPABILITIES}"`);
  return capabilities;
}

/** The value of a header, which may be in base64: `=?base64?…?=`. */
function decodeValue(value: string | null): string | null {
  const [, encoded] = /^=\?base64\?(.*)\?=$/.exec(value ?? "") ?? [];
  if (encoded === undefined) return value;
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0)));
  } catch {
    return null;
  }
}

/** A refusal that a model can mend, or `null`: it is none. */
export function refusalText(error: unknown): string | null {
  if (!isInstance(error, HoldfastError)) return null;
  if (
    !["invalid_request", "invalid_input", "conflict", "key_in_use", "not_found", "wait_expired"].includes(error.code)
  ) return null;
  return messageOf(error);
}

/** The issues of a refusal, as data of an error. */
export function issuesOf(error: ValidationError): Json {
  return { issues: error.issues.map(({ path, message }: Issue) => ({ path, message })) };
}
