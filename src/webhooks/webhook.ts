import { HookError } from "../http/access/caller.ts";
import { jsonResponse, MethodNotAllowedError, refuse, report } from "../http/response.ts";
import { decode, parseJson, readBytes } from "../http/requests/read_json.ts";
import { StoreError } from "../model/error.ts";
import { type Host, systemHost } from "../model/host.ts";
import { isInstance, kindOf } from "../values/unknown_values.ts";
import type { Json } from "../values/json.ts";
import { checkOptionNames } from "../values/option_names.ts";

/** What is known of a webhook whose signature is right. */
export interface VerifiedWebhook {
  /** The same for each delivery of the same event, and covered by the signature. */
  id: string;
  /** What has happened, such as `invoice.paid`. */
  type: string;
  /** The id of this delivery, if the provider sends one. It is not covered by the signature. */
  deliveryId?: string;
  /** What the body says. Default: the JSON of the body. */
  payload?: Json;
}

/** A verified webhook, as `receive` gets it. */
export interface ReceivedWebhook {
  /** The same for each delivery of the same event, and covered by the signature: the idempotency key of its run. */
  id: string;
  /** What has happened, such as `invoice.paid`; empty if the provider does not say so. */
  type: string;
  /** The JSON of the body. Its content is the provider's: give it to a schema. */
  payload: Json;
  /** The id of this delivery; `null` if the provider sends none. It is not covered by the signature. */
  deliveryId: string | null;
}

/** Options of every receiver of webhooks. */
export interface WebhookOptions {
  /**
   * Takes a verified webhook: triggers a run, or sends a message. The provider gets a 2xx only after this has resolved.
   * If it throws, the provider gets a 500, or a 503 if the store does not answer, and delivers again.
   */
  receive: (webhook: ReceivedWebhook) => unknown;
  /** Receives errors that a response hides, such as the error behind a 500. Default: it is printed. */
  onError?: (error: unknown, request: Request) => unknown;
  /** Time and timers. Default: those of the system. */
  host?: Host;
}

/** The names of {@linkcode WebhookOptions}, for checks. */
export const WEBHOOK_OPTIONS: Record<keyof WebhookOptions, true> = { receive: true, onError: true, host: true };

/** A webhook larger than this is refused, in bytes. */
const MAX_BYTES = 1_048_576;
const MAX_DEPTH = 64;

/**
 * Creates a receiver of webhooks of any provider that signs them. For the providers that this package knows there are
 * `standardWebhook()`, `stripeWebhook()` and `githubWebhook()`.
 *
 * @example
 * ```ts
 * import { webhook } from "@holdfast/jobs/webhooks";
 * import { Buffer } from "node:buffer";
 * import { createHmac, timingSafeEqual } from "node:crypto";
 *
 * const shop = webhook({
 *   verify(headers, bytes) {
 *     const sent = Buffer.from(headers.get("x-shop-signature") ?? "", "base64");
 *     const right = createHmac("sha256", "secret").update(bytes).digest();
 *     if (sent.length !== right.length || !timingSafeEqual(sent, right)) return null;
 *     const { id, topic } = JSON.parse(new TextDecoder().decode(bytes));
 *     return { id, type: topic };
 *   },
 *   receive: ({ id, type }) => console.log(id, type),
 * });
 * console.log((await shop(new Request("http://localhost/shop", { method: "POST", body: "{}" }))).status); // 401
 * ```
 *
 * @param options `verify` gets the headers and the body as it was sent, and returns `null` if the signature is not
 * right.
 * @returns A function that answers a request: 204 once `receive` has resolved, 401 for a wrong signature. It rejects with
 * a `TypeError` if the body was read before.
 * @throws {TypeError} An option is unknown, or not of its type.
 */
export function webhook(
  options: WebhookOptions & {
    verify: (
      headers: Headers,
      bytes: Uint8Array<ArrayBuffer>,
    ) => VerifiedWebhook | null | Promise<VerifiedWebhook | null>;
  },
): (request: Request) => Promise<Response> {
  checkOptionNames(options, { ...WEBHOOK_OPTIONS, verify: true }, "webhook()");
  const { verify, receive, host = systemHost } = options;
  for (const [name, value] of Object.entries({ verify, receive })) {
    if (typeof value !== "function") throw new TypeError(`webhook() needs a function ${name}, not ${kindOf(value)}`);
  }
  const onError = options.onError ?? ((error) => console.error("A webhook failed:", error));

  const answer = async (request: Request): Promise<Response> => {
    if (request.method !== "POST") throw new MethodNotAllowedError(["POST"]);
    const bytes = await readBytes(request, MAX_BYTES, host);
    const verified = await verify(request.headers, bytes);
    if (verified === null) {
      return jsonResponse({ error: "The signature of the webhook is not valid", code: "forbidden" }, 401);
    }
    const { id, type, deliveryId = null, payload = toJson(bytes) } = verified;
    try {
      await receive({ id, type, payload, deliveryId });
    } catch (cause) {
      // A refusal is hidden: what the provider has sent is right, and is to be sent again.
      throw isInstance(cause, StoreError) ? cause : new HookError("receive() failed", { cause });
    }
    return new Response(null, { status: 204 });
  };

  return async (request) => {
    if (request.bodyUsed) throw new TypeError("verify the webhook before anything reads its body");
    try {
      return await answer(request);
    } catch (thrown) {
      const { response, hidden } = refuse(thrown);
      if (hidden !== null) await report(hidden.error, request, { onError });
      return response;
    }
  };
}

/**
 * The JSON of a body.
 *
 * @throws {ValidationError} It is not JSON in UTF-8, or is nested too deeply.
 */
export function toJson(bytes: Uint8Array): Json {
  return parseJson(decode(bytes), MAX_DEPTH);
}
