import { Buffer } from "node:buffer";
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { internalsOf } from "../engine/engine_internals.ts";
import { findLinkedWait } from "../engine/runs/retried_waits.ts";
import { actionsOf, flatFieldsOf } from "../model/flat_form.ts";
import type { SignedLink } from "../http/handler_options.ts";
import type { Wait } from "../model/wait.ts";
import { kindOf } from "../values/unknown_values.ts";
import { isName, NAME_RULE } from "../values/name.ts";
import { checkOptionNames } from "../values/option_names.ts";

/** Options of {@linkcode signedLinks}. */
export interface SignedLinksOptions {
  /** 1 to 10 secrets of 32 to 1,024 characters. The first one signs, all are valid: so a key can be replaced. */
  keys: readonly string[];
  /** The address of the handler, without query and fragment. `https:`, or `http:` for localhost. */
  url: string;
}

/** Options of a link. */
export interface LinkOptions {
  /** Who gets it: up to 255 characters. Recorded as who has answered (`signalledBy`). */
  for?: string;
  /** The labels of those of `metadata.actions` that it offers. Default: all. */
  actions?: readonly string[];
  /** When it expires, if that is before the deadline of the wait. A wait without a deadline needs it. */
  expiresAt?: Date | string | number;
}

/** A link to a wait that exists. */
export interface OpenLink extends Pick<SignedLink, "for" | "actions" | "expiresAt" | "signalId"> {
  /** The wait that it is for now: that of the newest retry. It may have been answered. */
  wait: Wait;
}

/** Makes and reads links. {@linkcode signedLinks} makes one. */
export interface SignedLinks {
  /** The address of the handler. */
  readonly url: string;
  /**
   * The address of a page that answers a wait. Call it inside a step: a mail is an effect.
   *
   * It is for the wait of that name in the newest retry of the run, until the deadline of the wait.
   *
   * @throws {TypeError} The wait has no deadline and `expiresAt` is missing, nothing could be answered on the page, or an
   * option is not valid.
   */
  toWait(wait: Wait, options?: LinkOptions): Promise<string>;
  /**
   * Reads a token for a page of your own: render what you like, and call `engine.signal(link.wait.id, { signalId:
   * link.signalId, payload }, { by: link.for })`.
   *
   * @returns `null`: it is not valid, it has expired, or there is no such wait now.
   */
  open(token: string, engine: object): Promise<OpenLink | null>;
  /** What a token says, expired or not; `null`: it is forged, cut, or of a key that was removed. */
  read(token: string): Promise<SignedLink | null>;
}

const SIGNED_FOR = "holdfast-link-1\n";
const MAX_KEYS = 10;
const [MIN_KEY_LENGTH, MAX_KEY_LENGTH] = [32, 1_024];
const KEY_ID_LENGTH = 6;
const MAX_TOKEN_LENGTH = 2_048;
const ID_OF_MAC_LENGTH = 22;
const TOKEN = /^([\w-]{6})\.([\w-]{1,2000})\.([\w-]{43})$/;

/**
 * Makes links that answer a wait without an account. Hand the result to `createHandler({ links })`.
 *
 * A link is the right to answer one question once, as long as it is valid, and no other right.
 *
 * @example
 * ```ts
 * import { signedLinks } from "@holdfast/jobs/links";
 *
 * const [first, second] = ["a new key of at least 32 characters!", "the former key, also 32 characters"];
 * const links = signedLinks({ keys: [first, second], url: "https://app.example.com/api/jobs" });
 * ```
 *
 * @throws {TypeError} A key is too short, two keys are equal, or the address is not one of a handler.
 */
export function signedLinks(options: SignedLinksOptions): SignedLinks {
  checkOptionNames(options, { keys: true, url: true }, "signedLinks()");
  const url = checkUrl(options.url);
  const keys = checkKeys(options.keys).map(toKey);
  const read = (token: string): SignedLink | null => {
    const parts = typeof token === "string" && token.length <= MAX_TOKEN_LENGTH ? TOKEN.exec(token) : null;
    if (parts === null) return null;
    const [, keyId, body, mac] = parts as unknown as [string, string, string, string]; // the pattern has three
    const isSigned = keys.some((key) => key.id === keyId && isSame(macOf(key, body), mac));
    return isSigned ? toLink(body, mac) : null;
  };
  return {
    url,
    read: (token) => Promise.resolve(read(token)),
    // deno-lint-ignore require-await -- so that what is not valid rejects
    toWait: async (wait, given = {}) => {
      checkOptionNames(given, { for: true, actions: true, expiresAt: true }, "toWait()");
      const body = Buffer.from(JSON.stringify(toBody(wait, given))).toString("base64url");
      const [key] = keys as [Key]; // there is one at least
      const token = `${key.id}.${body}.${macOf(key, body)}`;
      if (token.length > MAX_TOKEN_LENGTH) {
        throw new TypeError(`The link to wait "${wait.name}" is too long: its actions have long labels`);
      }
      return `${url}/link?t=${token}`;
    },
    open: async (token, engine) => {
      const internals = internalsOf(engine);
      const link = read(token);
      if (link === null || Date.parse(link.expiresAt) <= internals.host.now()) return null;
      const { wait } = await findLinkedWait(internals, link);
      if (wait === null) return null;
      const { for: named, actions, expiresAt, signalId } = link;
      return { wait, for: named, actions, expiresAt, signalId };
    },
  };
}

interface Key {
  /** The begin of the tokens that it signs. */
  id: string;
  secret: string;
}

function toKey(secret: string): Key {
  const print = createHash("sha256").update(`${SIGNED_FOR}id\n${secret}`).digest("base64url");
  return { id: print.slice(0, KEY_ID_LENGTH), secret };
}

/** The signature of a body, as a token has it. */
function macOf({ id, secret }: Key, body: string): string {
  return createHmac("sha256", secret).update(`${SIGNED_FOR}${id}.${body}`).digest("base64url");
}

/** Whether two signatures are the same text: what encodes the same bytes in another way is another token. */
function isSame(one: string, other: string): boolean {
  return timingSafeEqual(Buffer.from(one), Buffer.from(other)); // the pattern says how long they are
}

function checkKeys(keys: unknown): readonly string[] {
  const isKey = (key: unknown) =>
    typeof key === "string" && key.length >= MIN_KEY_LENGTH && key.length <= MAX_KEY_LENGTH;
  if (!Array.isArray(keys) || keys.length === 0 || keys.length > MAX_KEYS || !keys.every(isKey)) {
    throw new TypeError(
      `keys must be 1 to ${MAX_KEYS} strings of at least ${MIN_KEY_LENGTH} characters: make one with crypto.randomUUID() twice`,
    );
  }
  if (new Set(keys).size < keys.length) throw new TypeError("keys must be different from each other");
  return [...keys];
}

function checkUrl(address: unknown): string {
  const url = typeof address === "string" ? URL.parse(address) : null;
  const isLocal = ["localhost", "127.0.0.1", "[::1]"].includes(url?.hostname ?? "");
  const isServed = url?.protocol === "https:" || (url?.protocol === "http:" && isLocal);
  if (url !== null && isServed && url.username === "" && url.password === "" && !/[?#]/.test(address as string)) {
    return url.href.replace(/\/+$/, "");
  }
  throw new TypeError(
    'url must be the address of the handler, such as "https://app.example.com/api/jobs": https (http for localhost), ' +
      "without query and fragment",
  );
}

type Body = [runId: string, waitName: string, expiresAt: number, recipient: string | null, actions?: readonly string[]];

function toBody(wait: Wait, { for: named, actions, expiresAt }: LinkOptions): Body {
  if (typeof wait?.runId !== "string" || typeof wait.name !== "string") {
    throw new TypeError(`toWait() needs a wait: what step.prepareWait() returns, not ${kindOf(wait)}`);
  }
  if (named !== undefined && !isName(named)) throw new TypeError(`for ${NAME_RULE}`);
  checkAnswers(wait, actions);
  const ends = [wait.deadlineAt ?? undefined, expiresAt].flatMap((end) => {
    if (end === undefined) return [];
    const at = new Date(end).getTime();
    if (Number.isNaN(at)) throw new TypeError("expiresAt must be a date");
    return [Math.ceil(at / 1_000)]; // the clocks of a job and of a handler may differ
  });
  if (ends.length === 0) throw new TypeError(`Wait "${wait.name}" has no deadline: give expiresAt`);
  const body: Body = [wait.runId, wait.name, Math.min(...ends), named ?? null];
  return actions === undefined ? body : [...body, [...actions]] as unknown as Body;
}

/** Refuses a link that could not be answered. */
function checkAnswers(wait: Wait, actions: readonly string[] | undefined): void {
  const offered = actionsOf(wait.metadata).map(({ label }) => label);
  if (actions === undefined) {
    if (offered.length > 0 || flatFieldsOf(wait.payloadSchema) !== null) return;
    throw new TypeError(
      `Wait "${wait.name}" cannot be answered by a link: it has neither metadata.actions nor a schema that is an object of ` +
        "at most 20 strings, numbers, booleans and enums, with a JSON Schema of up to 8,192 characters",
    );
  }
  const isList = Array.isArray(actions) && actions.length > 0;
  const unknown = isList ? actions.find((label) => !offered.includes(label)) : actions;
  if (isList && unknown === undefined) return;
  throw new TypeError(
    `actions of a link must be labels of metadata.actions of wait "${wait.name}", not ${JSON.stringify(unknown)}`,
  );
}

function toLink(body: string, mac: string): SignedLink | null {
  try {
    const [runId, waitName, expiresAt, named, actions]: Body = JSON.parse(Buffer.from(body, "base64url").toString());
    return {
      runId,
      waitName,
      for: named,
      actions: actions === undefined ? null : Object.freeze([...actions]),
      expiresAt: new Date(expiresAt * 1_000).toISOString(),
      signalId: `link/${mac.slice(0, ID_OF_MAC_LENGTH)}`, // not all of it: an id is shown to operators
    };
  } catch {
    return null; // signed by this key for something else
  }
}
