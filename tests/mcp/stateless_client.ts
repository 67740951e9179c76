/** What a server answers to a request of JSON-RPC. */
export interface RpcAnswer {
  /** The status of HTTP. */
  status: number;
  // deno-lint-ignore no-explicit-any -- so that a test can look into it without ado
  result?: any;
  // deno-lint-ignore no-explicit-any -- the same
  error?: any;
  /** The body as it came. */
  text: string;
}

/** What a request has besides its method and parameters. */
export interface RpcOptions {
  /** What the client can do. Default: tasks and forms. */
  capabilities?: object;
  /** Headers beside those that mirror the body; `null` leaves one out. */
  headers?: Record<string, string | null>;
  /** The parameters of `_meta` in place of the right ones. */
  meta?: unknown;
}

const TASKS = { extensions: { "io.modelcontextprotocol/tasks": {} }, elicitation: {} };

/** A request of the version of MCP without sessions. */
export function aRequest(
  url: string,
  method: string,
  params: Record<string, unknown> = {},
  { capabilities = TASKS, headers = {}, meta }: RpcOptions = {},
): Request {
  const version = "2026-07-28";
  const name = params.name ?? params.taskId;
  const all: Record<string, string | null> = {
    "content-type": "application/json",
    "mcp-protocol-version": version,
    "mcp-method": method,
    ...(typeof name === "string" ? { "mcp-name": name } : {}),
    ...headers,
  };
  const _meta = meta === undefined
    ? {
      "io.modelcontextprotocol/protocolVersion": version,
      "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    : meta;
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method,
    params: { ...params, ...(_meta === null ? {} : { _meta }) },
  });
  const sent = Object.entries(all).filter((header): header is [string, string] => header[1] !== null);
  return new Request(url, { method: "POST", headers: sent, body });
}

/** Sends a request of the version of MCP without sessions. */
export async function rpc(
  send: (request: Request) => Promise<Response>,
  url: string,
  ...request: [method: string, params?: Record<string, unknown>, options?: RpcOptions]
): Promise<RpcAnswer> {
  const response = await send(aRequest(url, ...request));
  const text = await response.text();
  let body: Pick<RpcAnswer, "result" | "error"> = {};
  try {
    body = JSON.parse(text);
  } catch {
    // A refusal of a hook may be any text.
  }
  return { status: response.status, text, result: body.result, error: body.error };
}
