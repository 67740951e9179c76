import { Buffer } from "node:buffer";
import { createHmac, timingSafeEqual } from "node:crypto";
import { ValidationError } from "../model/error.ts";
import { type Host, systemHost } from "../model/host.ts";
import type { Json } from "../values/json.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { propertyOf } from "../values/unknown_values.ts";
import { readSecrets, toSigningKey } from "./signing_keys.ts";
import { toJson, webhook, WEBHOOK_OPTIONS, type WebhookOptions } from "./webhook.ts";

/** Options of a receiver of webhooks of one provider. */
export interface ProviderOptions extends WebhookOptions {
  /** The secret that the provider shows, or up to 10 of them while it is replaced: each one is tried. */
  secret: string | readonly string[];
}

/**
 * Creates a receiver of webhooks that follow Standard Webhooks (https://www.standardwebhooks.com): those of
 * `webhookJob()`, of Svix and of many providers. `id` is the header `webhook-id`, `type` the member of the body.
 *
 * @example
 * ```ts
 * import { standardWebhook } from "@holdfast/jobs/webhooks";
 *
 * const shop = standardWebhook({
 *   secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", // in production, from the environment
 *   receive: ({ id, type }) => console.log(id, type),
 * });
 * console.log((await shop(new Request("http://localhost/shop", { method: "POST", body: "{}" }))).status); // 401
 * ```
 *
 * @returns A function that answers a request.
 * @throws {TypeError} An option is unknown, or a secret is not valid.
 */
export function standardWebhook(options: ProviderOptions): (request: Request) => Promise<Response> {
  const keys = readSecrets(options?.secret, "standardWebhook()", toSigningKey);
  return receiver(options, "standardWebhook()", (headers, bytes, isCurrent) => {
    const id = headers.get("webhook-id") ?? "";
    const timestamp = headers.get("webhook-timestamp") ?? "";
    const macs = (headers.get("webhook-signature") ?? "").split(" ").flatMap((value) => {
      const mac = Buffer.from(value.slice(3), "base64");
      // Base64 has several texts for the same bytes: only the one that is written counts.
      return value === `v1,${mac.toString("base64")}` ? [mac] : [];
    });
    if (id === "" || !isCurrent(timestamp) || !isSigned(macs, keys, [`${id}.${timestamp}.`, bytes])) return null;
    const payload = toJson(bytes);
    return { id, type: textOf(payload, "type"), payload };
  });
}

/**
 * Creates a receiver of webhooks of Stripe. `id` and `type` are those of the event.
 *
 * @example
 * ```ts
 * import { stripeWebhook } from "@holdfast/jobs/webhooks";
 *
 * const stripe = stripeWebhook({
 *   secret: "whsec_of_the_endpoint", // in production, from the environment
 *   receive: ({ id, type }) => console.log(id, type),
 * });
 * console.log((await stripe(new Request("http://localhost/stripe", { method: "POST", body: "{}" }))).status); // 401
 * ```
 *
 * @returns A function that answers a request.
 * @throws {TypeError} An option is unknown, or a secret is not valid.
 */
export function stripeWebhook(options: ProviderOptions): (request: Request) => Promise<Response> {
  const keys = readSecrets(options?.secret, "stripeWebhook()", (secret) => Buffer.from(secret));
  return receiver(options, "stripeWebhook()", (headers, bytes, isCurrent) => {
    const parts = (headers.get("stripe-signature") ?? "").split(",").map((part) => part.trim());
    const valuesOf = (name: string) =>
      parts.filter((part) => part.startsWith(`${name}=`)).map((part) => part.slice(name.length + 1));
    const timestamp = valuesOf("t")[0] ?? "";
    const macs = valuesOf("v1").map((value) => Buffer.from(value, "hex"));
    if (!isCurrent(timestamp) || !isSigned(macs, keys, [`${timestamp}.`, bytes])) return null;
    const payload = toJson(bytes);
    const id = textOf(payload, "id");
    if (id === "") throw new ValidationError("The event has no id");
    return { id, type: textOf(payload, "type"), payload };
  });
}

/**
 * Creates a receiver of webhooks of GitHub; choose `application/json` there. GitHub signs the body alone: neither a
 * time, nor the name of the event, nor the id of the delivery. So `id` is the SHA-256 of the body, `type` and
 * `deliveryId` are headers, and a party that has seen a delivery can send it again: with the `id` as idempotency key it has
 * no effect.
 *
 * @example
 * ```ts
 * import { githubWebhook } from "@holdfast/jobs/webhooks";
 *
 * const github = githubWebhook({
 *   secret: "It's a Secret to Everybody", // in production, from the environment
 *   receive: ({ id, type }) => console.log(id, type),
 * });
 * console.log((await github(new Request("http://localhost/github", { method: "POST", body: "{}" }))).status); // 401
 * ```
 *
 * @returns A function that answers a request.
 * @throws {TypeError} An option is unknown, or a secret is not valid.
 */
export function githubWebhook(options: ProviderOptions): (request: Request) => Promise<Response> {
  const keys = readSecrets(options?.secret, "githubWebhook()", (secret) => Buffer.from(secret));
  return receiver(options, "githubWebhook()", async (headers, bytes) => {
    const [, mac = ""] = /^sha256=([0-9a-f]{64})$/i.exec(headers.get("x-hub-signature-256") ?? "") ?? [];
    if (!isSigned([Buffer.from(mac, "hex")], keys, [bytes])) return null;
    const id = Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex");
    const deliveryId = headers.get("x-github-delivery");
    const type = headers.get("x-github-event") ?? "";
    return { id, type, payload: toJson(bytes), ...(deliveryId === null ? {} : { deliveryId }) };
  });
}

type Verify = Parameters<typeof webhook>[0]["verify"];

function receiver(
  options: ProviderOptions,
  subject: string,
  verify: (
    headers: Headers,
    bytes: Uint8Array<ArrayBuffer>,
    isCurrent: (timestamp: string) => boolean,
  ) => ReturnType<Verify>,
): (request: Request) => Promise<Response> {
  checkOptionNames(options, { ...WEBHOOK_OPTIONS, secret: true }, subject);
  const { secret: _secret, ...rest } = options;
  const host: Pick<Host, "now"> = options.host ?? systemHost;
  const isCurrent = (timestamp: string) =>
    /^\d{1,12}$/.test(timestamp) && Math.abs(host.now() / 1_000 - Number(timestamp)) <= TOLERANCE_SECONDS;
  return webhook({ ...rest, verify: (headers, bytes) => verify(headers, bytes, isCurrent) });
}

/** How far the time of a signature may be off, past or future. */
const TOLERANCE_SECONDS = 300;
/** More signatures of one webhook are not looked at: each costs a comparison for each secret. */
const MAX_SIGNATURES = 10;

/** Whether one of the signatures is that of one of the keys. All are compared, so that the time says nothing. */
function isSigned(
  macs: readonly Uint8Array[],
  keys: readonly Uint8Array[],
  content: readonly (string | Uint8Array)[],
): boolean {
  let isRight = false;
  for (const key of keys) {
    const hmac = createHmac("sha256", key);
    for (const part of content) hmac.update(part);
    const right = hmac.digest();
    for (const mac of macs.slice(0, MAX_SIGNATURES)) {
      if (mac.byteLength === right.byteLength && timingSafeEqual(mac, right)) isRight = true;
    }
  }
  return isRight;
}

/** A member of the body that is a string; empty if there is none. */
function textOf(payload: Json, name: string): string {
  const value = propertyOf(payload, name);
  return typeof value === "string" ? value : "";
}
