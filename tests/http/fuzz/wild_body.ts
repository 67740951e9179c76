import fc from "fast-check";

/** A body that somebody sends. */
export interface WildBody {
  /** What is wrong with it, in words. */
  kind: string;
  /** Its parts, which come one after another; `null`: none at all. Texts may have placeholders. */
  parts: readonly (string | Uint8Array<ArrayBuffer>)[] | null;
  /** What happens after the last part. */
  ending: "end" | "break off" | "stall";
  /** What has to be answered by the route that it is for, if nothing else is wrong; left out if nobody knows. */
  expected?: { route: string; status: number; code?: string };
}

const A_TRIGGER = { jobName: "echo", input: { n: 1 }, labels: { org: "{tenant}" } };
const LONG = "x".repeat(256);
const MANY_LABELS = Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`k${n}`, "v"]));

/** Fields that are put in the place of good ones, and what has to be answered to that. */
type Change = [status: number, fields: object, code?: string];

/** Bodies of `POST /trigger` with one thing changed, and what comes of it. */
const TRIGGERS: Change[] = [
  [200, {}],
  [200, { unknown: { a: [] }, "": null }],
  [200, { idempotencyKey: "k", concurrencyKey: "c", coalesce: "active" }],
  [200, { idempotencyKey: "\u{1F4A9} ' OR 1=1 --" }],
  [200, { labels: { org: "{tenant}", empty: "" } }],
  [200, { input: { "": "\u0000\ud800", constructor: null } }],
  [400, { jobName: undefined }],
  ...["", LONG, "a\u0000", "\ud800", 1, null, ["echo"], {}].map((jobName) => [400, { jobName }] as Change),
  ...[undefined, null, 1, "x", [], [{}], true].map((input) => [200, { input }] as Change),
  ...[undefined, null, 1, "x", [], true].map((input) => [400, { jobName: "strict", input }, "invalid_input"] as Change),
  ...["", LONG, "a\n", "\udfff", 0, null, false, {}].flatMap((key) =>
    [[400, { idempotencyKey: key }], [400, { concurrencyKey: key }]] as Change[]
  ),
  ...["", "Active", "skip ", null, 1, ["skip"]].map((coalesce) => [400, { coalesce, concurrencyKey: "c" }] as Change),
  [400, { coalesce: "skip" }],
  [200, { startAt: "2040-01-01T01:00:00+01:00", priority: -1_000, startWithin: 1, finishWithin: 3_155_760_000_000 }],
  [200, { startAt: "0000-01-01", priority: 1_000 }],
  [200, { startAt: "9999-12-31T23:59:59.999Z", startWithin: 3_155_760_000_000 }],
  [200, { delay: 3_155_760_000_000, startWithin: 3_155_760_000_000 }],
  ...["k", 5, null].map((fairnessKey) => [400, { fairnessKey }] as Change),
  [200, { delay: 0, priority: -0 }],
  ...["", "now", "2040-01-01T00:00:00", "2040-02-30", "+010000-01-01T00:00:00Z", 0, null, {}].map((startAt) =>
    [400, { startAt }] as Change
  ),
  ...[-1, 0.5, 3_155_760_000_001, 9e15, "1", null, []].flatMap((wrong) =>
    ["delay", "startWithin", "finishWithin"].map((name) => [400, { [name]: wrong }] as Change)
  ),
  ...[-1_001, 1_001, 0.5, 1e300, "1", null, true].map((priority) => [400, { priority }] as Change),
  [400, { startAt: "2040-01-01", delay: 0 }],
  [400, { coalesce: "queue", concurrencyKey: "c", delay: 0 }],
  ...["start_at", "Delay", "PRIORITY", "start-within", "finishwithin"].map((name) => [400, { [name]: 1 }] as Change),
  ...["idempotency_key", "IdempotencyKey", "JOBNAME", "con-currency_KEY", "_labels"].map((name) =>
    [400, { [name]: "k" }] as Change
  ),
  [200, { idempotency: "k", key: "k", label: {}, "idempotency key": "k" }],
  ...[null, 1, "org", [], [["org", "a"]], { org: 1 }, { org: null }, { "a b": "c" }, { "": "c" }, {
    ["k".repeat(64)]: "c",
  }]
    .map((labels) => [400, { labels }] as Change),
  ...[LONG, "a\u0007", "\ud83d"].map((team) => [400, { labels: { org: "{tenant}", team } }] as Change),
  [400, { labels: { ...MANY_LABELS, org: "{tenant}" } }],
  [400, { jobName: "strict", input: { n: "x" } }, "invalid_input"],
  [403, { labels: undefined }],
  [403, { labels: { org: "b" } }],
  [403, { labels: { ORG: "{tenant}" } }],
  ...["unknown", "__proto__", "constructor", "echo ", "Echo"].map((jobName) => [404, { jobName }] as Change),
];

const A_SIGNAL = { signalId: "wild", payload: null };

/** The same for `POST /signal`. */
const SIGNALS: Change[] = [
  ...["", " \u2003", LONG, "a\u0085", "\udc00", 1, null, {}, undefined].map((signalId) =>
    [400, { signalId }] as Change
  ),
  [400, { payload: undefined }],
];

/** Texts that are nearly JSON, or nearly a trigger, and what comes of each. */
const TEXTS: [status: number, text: string][] = [
  [400, ""],
  [400, " "],
  [400, "null"],
  [400, "[]"],
  [400, `[${JSON.stringify(A_TRIGGER)}]`],
  [400, JSON.stringify(JSON.stringify(A_TRIGGER))],
  [400, `\ufeff${JSON.stringify(A_TRIGGER)}`],
  [400, `${JSON.stringify(A_TRIGGER)},`],
  [400, `${JSON.stringify(A_TRIGGER)}\u0000`],
  [400, JSON.stringify(A_TRIGGER).slice(0, -1)],
  [400, JSON.stringify(A_TRIGGER).replaceAll('"', "'")],
  [400, '{"jobName":"echo","input":{"n":1e999},"labels":{"org":"{tenant}"}}'],
  [400, '{"jobName":"echo","input":{"n":NaN},"labels":{"org":"{tenant}"}}'],
  [400, '{"jobName":"echo","input":{},"labels":{"org":"{tenant}","__proto__":{}}}'],
  [200, '{"jobName":"echo","input":{"__proto__":{"polluted":1}},"labels":{"org":"{tenant}","__proto__":"x"}}'],
  [200, '{"__proto__":{"coalesce":"skip"},"jobName":"echo","input":{},"labels":{"org":"{tenant}"}}'],
  [200, '{"jobName":"unknown","jobName":"echo","input":{},"labels":{"org":"{tenant}"}}'],
];

/** What is said of a refusal, unless something else is known. */
const CODES: Record<number, string> = { 400: "invalid_request", 403: "foreign_labels", 404: "not_found" };

const NEAR_TRIGGER = [
  ...TRIGGERS.map(([status, fields, code = CODES[status]]) => ({
    expected: { route: "trigger", status, code },
    text: JSON.stringify({ ...A_TRIGGER, ...fields }),
  })),
  ...TEXTS.map(([status, text]) => ({ expected: { route: "trigger", status, code: CODES[status] }, text })),
].map(({ expected, text }): WildBody => ({ kind: "nearly a trigger", parts: [text], ending: "end", expected }));

const NEAR_SIGNAL = SIGNALS.map(([status, fields]): WildBody => ({
  kind: "nearly a signal",
  parts: [JSON.stringify({ ...A_SIGNAL, ...fields })],
  ending: "end",
  expected: { route: "signal", status },
}));

function nested(depth: number, isObject: boolean): WildBody {
  const input = isObject
    ? `${'{"a":'.repeat(depth)}{}${"}".repeat(depth)}`
    : `{"a":${"[".repeat(depth)}${"]".repeat(depth)}}`;
  // The body itself is the first level, and the innermost container the last.
  const status = depth + 2 > 64 ? 400 : 200;
  return {
    kind: `nested ${depth} deep`,
    parts: [`{"jobName":"echo","labels":{"org":"{tenant}"},"input":${input}}`],
    ending: "end",
    expected: { route: "trigger", status },
  };
}

const TOO_LARGE: WildBody = {
  kind: "too large",
  parts: [`{"a":"${"x".repeat(1_048_576)}"}`],
  ending: "end",
  expected: { route: "trigger", status: 413 },
};

/** Any body: most of them nearly right. */
export const aWildBody: fc.Arbitrary<WildBody> = fc.oneof(
  { weight: 12, arbitrary: fc.constantFrom(...NEAR_TRIGGER) },
  { weight: 4, arbitrary: fc.constantFrom(...NEAR_SIGNAL) },
  { weight: 2, arbitrary: fc.constant<WildBody>({ kind: "none", parts: null, ending: "end" }) },
  {
    weight: 3,
    arbitrary: fc.tuple(fc.constantFrom(1, 30, 61, 62, 63, 64, 1_000, 20_000), fc.boolean()).map((args) =>
      nested(...args)
    ),
  },
  {
    weight: 3,
    arbitrary: fc.json({ noUnicodeString: false, depthSize: "medium" }).map((text): WildBody => ({
      kind: "JSON",
      parts: [text],
      ending: "end",
    })),
  },
  {
    weight: 3,
    arbitrary: fc.jsonValue({ noUnicodeString: false }).map((input): WildBody => ({
      kind: "any input",
      parts: [JSON.stringify({ ...A_TRIGGER, input: { input } })],
      ending: "end",
      expected: { route: "trigger", status: 200 },
    })),
  },
  {
    weight: 2,
    arbitrary: fc.uint8Array({ minLength: 1, maxLength: 20 }).map((bytes): WildBody => ({
      kind: "bytes within a trigger",
      parts: ['{"jobName":"echo","input":{"a":"', new Uint8Array([...bytes, 0xff]), '"},"labels":{"org":"{tenant}"}}'],
      ending: "end",
      expected: { route: "trigger", status: 400 },
    })),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("a stream"),
      parts: fc.array(fc.constantFrom('{"jobName":', '"echo",', '"input":{}', "}", "\ufeff"), { maxLength: 5 }),
      ending: fc.constantFrom("end", "break off", "stall"),
    }),
  },
  { weight: 1, arbitrary: fc.constant(TOO_LARGE) },
);
