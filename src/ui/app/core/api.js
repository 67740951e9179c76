// @ts-check

/** A response that is no success. */
export class ApiError extends Error {
  /**
   * @param {number} status The status; 0: the server cannot be reached.
   * @param {{ error?: string, code?: string, issues?: { path: string[], message: string }[] }} body
   */
  constructor(status, body) {
    super(body.error ?? (status === 0 ? "The server cannot be reached" : `The server answered ${status}`));
    this.status = status;
    this.body = body;
    this.code = body.code ?? "";
    this.issues = body.issues ?? [];
  }
}

const TOKEN = "holdfast-token";
/** @type {string | null} */
let token = sessionStorage.getItem(TOKEN);
/** @type {(isMissing: boolean, isRefused: boolean) => void} */
let onMissingToken = () => {};

/**
 * @param {(isMissing: boolean, isRefused: boolean) => void} listener Called when a request is refused for want of a
 * token, or because of the one that was entered.
 */
export function listenForMissingToken(listener) {
  onMissingToken = listener;
}

/**
 * Sets the bearer token of all further requests.
 * @param {string} text
 * @param {boolean} isKept Whether this tab keeps it until it is closed.
 * @returns {boolean} `false`: it has a character that no header takes, such as one that is not visible, and nothing was set.
 */
export function setToken(text, isKept) {
  try {
    new Headers({ authorization: `Bearer ${text}` });
  } catch {
    return false;
  }
  token = text;
  if (isKept) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
  onMissingToken(false, false);
  return true;
}

/**
 * The address of a route: beside the page, whatever the prefix.
 * @param {string} path
 * @param {Record<string, unknown>} [query] Lists become repeated parameters; empty values are left out.
 */
export function addressOf(path, query = {}) {
  const url = new URL(location.pathname.replace(/ui\/?$/, path), location.origin); // the page is at `ui` and `ui/`
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") url.searchParams.append(name, String(each));
    }
  }
  return url.href;
}

/**
 * Sends a request with the caller's credentials.
 * @param {string} address
 * @param {RequestInit & { headers?: Record<string, string> }} [init]
 */
export async function send(address, init = {}) {
  const sent = token;
  const headers = { ...init.headers, ...(token === null ? {} : { authorization: `Bearer ${token}` }) };
  const response = await fetch(address, { ...init, headers }).catch((error) => {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, {});
  });
  if (response.ok) return response;
  if (response.status === 401 && sent === token) {
    onMissingToken(true, token !== null);
    sessionStorage.removeItem(TOKEN);
  }
  const body = await response.json().catch(() => ({}));
  throw new ApiError(response.status, typeof body === "object" && body !== null ? body : {});
}

/**
 * Reads JSON from a route.
 * @param {string} path
 * @param {Record<string, unknown>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, query, signal) {
  return await (await send(addressOf(path, query), signal === undefined ? {} : { signal })).json();
}

/**
 * Changes something.
 * @param {string} path
 * @param {Record<string, unknown>} [query]
 * @param {unknown} [body]
 * @param {"POST" | "DELETE"} [method]
 * @returns {Promise<any>}
 */
export async function post(path, query, body, method = "POST") {
  const init = body === undefined ? { method } : { method, body: JSON.stringify(body) };
  return await (await send(addressOf(path, query), init)).json();
}
