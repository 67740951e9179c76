import { Buffer } from "node:buffer";

/** How many secrets may be valid at once, while one is replaced. */
const MAX_SECRETS = 10;

/**
 * Reads one secret, or several.
 *
 * @param subject What takes them, for the message.
 * @throws {TypeError} There is none, or one is not valid. The message has no part of a secret.
 */
export function readSecrets<Key>(
  given: unknown,
  subject: string,
  toKey: (secret: string) => Key,
): Key[] {
  const secrets: unknown[] = Array.isArray(given) ? given : [given];
  if (
    secrets.length === 0 || secrets.length > MAX_SECRETS ||
    secrets.some((secret) => typeof secret !== "string" || secret === "")
  ) {
    throw new TypeError(
      `The secret of ${subject} must be a string, or 1 to ${MAX_SECRETS} strings, none of them empty`,
    );
  }
  return (secrets as string[]).map(toKey); // checked above
}

/**
 * The key of a secret of Standard Webhooks: `whsec_` and base64.
 *
 * @throws {TypeError} It is not base64.
 */
export function toSigningKey(secret: string): Uint8Array {
  const text = secret.replace(/^whsec_/, "");
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text)) {
    throw new TypeError('A secret of Standard Webhooks must be "whsec_" and base64');
  }
  return Buffer.from(text, "base64");
}
