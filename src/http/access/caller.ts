import { TimeoutError } from "../../model/error.ts";
import type { Host } from "../../model/host.ts";
import { isInstance } from "../../values/unknown_values.ts";
import type { HandlerAuth } from "./auth_hooks.ts";

/**
 * Authenticates the sender of a request.
 *
 * @returns What `authenticate` returned; `null` without hooks.
 * @throws {Response} It refuses the request.
 */
export async function authenticate(
  request: Request,
  { auth, host }: { auth: HandlerAuth<unknown> | null; host: Host },
): Promise<unknown> {
  return auth === null
    ? null
    : await callAuthHook("authenticate", () => auth.authenticate(request), (returned) => returned, host);
}

/** Ignores the result of a hook that can only refuse. */
export function nothing(): void {}

/**
 * Calls a hook that may refuse. Returning a refusal instead of throwing it is an error: it would allow every caller.
 */
export async function callAuthHook<T>(
  name: string,
  hook: () => unknown,
  read: (returned: unknown) => T,
  host: Host,
): Promise<T> {
  return await callHook(name, async () => {
    const returned = await hook();
    // A hook that returns `false` instead of throwing would allow all callers.
    if (returned === false) throw new TypeError(`auth.${name} returned false: to refuse, it must throw a Response`);
    if (!isInstance(returned, Response) && !isInstance(returned, Error)) return read(returned);
    throw new TypeError(`auth.${name} returned a value that it must throw`, { cause: returned });
  }, host);
}

/** A hook of the host failed. The original error is the `cause`. */
export class HookError extends Error {}

const HOOK_TIMEOUT_MS = 30_000;

/**
 * Calls a hook of the host, sync or async.
 *
 * @throws {Response} The response that it throws; a copy if it has thrown it before.
 * @throws {HookError} It threw something else, or took too long.
 */
export async function callHook<T>(name: string, hook: () => T | Promise<T>, host: Host): Promise<T> {
  const late = Promise.withResolvers<never>();
  const cancelTimer = host.schedule(
    HOOK_TIMEOUT_MS,
    () => late.reject(new TimeoutError(`${name} takes more than ${HOOK_TIMEOUT_MS} ms`)),
  );
  try {
    return await Promise.race([hook(), late.promise]);
  } catch (thrown) {
    if (isInstance(thrown, Response)) throw await toSendable(thrown, name);
    throw new HookError(`${name} failed`, { cause: thrown });
  } finally {
    cancelTimer();
  }
}

/** Of responses that were sent, a copy, or the body of that once it was read: a hook may throw the same one again. */
const kept = new WeakMap<Response, Response | Promise<ArrayBuffer>>();

async function toSendable(response: Response, name: string): Promise<Response> {
  const copy = kept.get(response);
  if (copy !== undefined) {
    // Not a copy of the copy each time: on Node, each of them would be kept by the next one.
    const body = isInstance(copy, Response) ? copy.arrayBuffer() : copy;
    kept.set(response, body);
    const { byteLength } = await body;
    return new Response(byteLength === 0 ? null : await body, response); // some statuses allow no body
  }
  try {
    if (response.status < 200) throw new TypeError("It is an error");
    // Before its body is looked at: then it would be a stream, and the copy would be the other branch of a tee.
    kept.set(response, response.clone());
    return response;
  } catch (error) {
    const cause = new TypeError(
      `${name} threw a Response that cannot be sent: its body was read, or it is an error`,
      { cause: error },
    );
    throw new HookError(`${name} failed`, { cause });
  }
}
