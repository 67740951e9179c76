import { createHmac } from "node:crypto";
import { NonRetryableError, RetryAfterError } from "../model/error.ts";
import type { StepTools } from "../model/job/step_calls.ts";
import { propertyOf } from "../values/unknown_values.ts";
import { readRetryAfter } from "../values/retry_after_header.ts";
import { isPublicHost } from "./public_address.ts";
import { readSecrets, toSigningKey } from "./signing_keys.ts";

/** Where a webhook is sent to. */
export interface WebhookEndpoint {
  /** The address, `https:` and public. */
  url: string;
  /** The secret of Standard Webhooks (`whsec_` and base64), or up to 10 while it is replaced: each one signs. */
  secret: string | readonly string[];
}

/** What is sent. */
interface WebhookRequest {
  /** Its `webhook-id`. */
  id: string;
  /** Its body. */
  body: string;
  /** The delay before the next attempt, which the receiver may prolong. */
  delayMs: number;
}

type Resolve = (hostname: string) => Promise<readonly string[]>;

const MAX_RETRY_AFTER_MS = 12 * 3_600_000;

/** Sends a webhook once. No error has a part of the address or the secret: errors are stored. */
export async function sendWebhook(
  endpoint: WebhookEndpoint,
  { id, body, delayMs }: WebhookRequest,
  abortSignal: StepTools["abortSignal"],
  { fetch = globalThis.fetch, resolve, allowPrivate = false }: {
    fetch?: (url: string, init: RequestInit) => Promise<Response>;
    resolve?: Resolve;
    allowPrivate?: boolean;
  },
): Promise<{ status: number }> {
  const url = readUrl(endpoint.url, allowPrivate);
  const headers = { "content-type": "application/json", ...sign(endpoint.secret, id, body) };
  if (!allowPrivate && !(await isPublic(url.hostname, resolve))) {
    throw new NonRetryableError("The endpoint is in a private network");
  }
  const init: RequestInit = { method: "POST", headers, body, redirect: "manual", signal: abortSignal };
  const { status, headers: answer } = await fetch(url.href, init).then(withoutBody, notReached);
  if (status >= 200 && status < 300) return { status };
  if (status === 410) throw new NonRetryableError("The receiver answered 410: it wants no more");
  const message = `The receiver answered ${status}`;
  const askedMs = readDelay(answer.get("retry-after"));
  // A receiver that asks for a second, for hours, would use up all attempts in a minute.
  throw askedMs > delayMs ? new RetryAfterError(askedMs, message) : new Error(message);
}

/** The address of an endpoint, if it may be used at all. */
function readUrl(text: unknown, allowPrivate: boolean): URL {
  const url = URL.parse(String(text));
  const isSecure = url?.protocol === "https:" || (allowPrivate && url?.protocol === "http:");
  if (url !== null && isSecure && url.username === "" && url.password === "") return url;
  throw new NonRetryableError("The address of the endpoint must be https:, and have no user name");
}

async function isPublic(hostname: string, resolve: Resolve | undefined): Promise<boolean> {
  try {
    return await isPublicHost(hostname, resolve);
  } catch {
    throw new Error("The name of the endpoint could not be resolved");
  }
}

/** The headers of Standard Webhooks, with one signature for each secret. The time is that of the attempt. */
function sign(secret: unknown, id: string, body: string): Record<string, string> {
  const timestamp = Math.floor(Date.now() / 1_000).toString();
  try {
    const signatures = readSecrets(secret, "an endpoint", toSigningKey).map((key) =>
      `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64")}`
    );
    return { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signatures.join(" ") };
  } catch (error) {
    throw new NonRetryableError(String(propertyOf(error, "message"))); // another attempt has the same secret
  }
}

/** An answer without its body, which may have any size. */
async function withoutBody(response: Response): Promise<Response> {
  await response.body?.cancel().catch(() => {});
  return response;
}

/** The message of `fetch()` has the address, so only the code is kept. */
function notReached(error: unknown): never {
  const code = propertyOf(error, "code") ?? propertyOf(propertyOf(error, "cause"), "code");
  const isCode = typeof code === "string" && /^[A-Z_]{3,40}$/.test(code);
  throw new Error(`The receiver could not be reached${isCode ? `: ${code}` : ""}`);
}

/** The delay that a receiver asks for, at most 12 hours; 0: it asks for none. */
function readDelay(header: string | null): number {
  const delay = header === null ? null : readRetryAfter(header);
  if (delay === null) return 0;
  return Math.min("at" in delay ? delay.at - Date.now() : delay.afterMs, MAX_RETRY_AFTER_MS);
}
