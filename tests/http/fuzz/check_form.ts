import assert from "node:assert/strict";
import { HOOK_CODES } from "./tenants.ts";

/** What a client was answered, before anything is made of it. */
export interface RawAnswer {
  status: number;
  headers: Headers;
  /** The body; that of a stream is not read. */
  text: string;
}

/** The codes that go with each status, from the contract. None has a 500, and a 503 only who asks for too much. */
const CODES: Record<number, readonly string[]> = {
  400: ["invalid_request", "invalid_input"],
  403: ["forbidden", "cross_origin"],
  404: ["not_found"],
  405: ["method_not_allowed"],
  408: ["body_timeout"],
  409: ["conflict", "key_in_use"],
  410: ["wait_expired"],
  413: ["body_too_large"],
  415: ["unsupported_encoding"],
};

const RUN = [
  "id,jobName,status,input,output,labels,createdAt,isTerminal,isActive,isWaiting",
  "error,failedStepName,progress,startedAt,completedAt,startAt,priority,startBy,finishBy,failureKind,retriggerOf,retriggeredAs,completedAs",
] as const;
const WAIT = [
  "id,runId,name,metadata,status,outcome,payload,signalId,createdAt,deadlineAt,suspendedAt,resolvedAt,firstResumedAt",
  "signalledBy",
] as const;
const STEP = ["id,runId,name,index,status,output,error,attempts,startedAt,completedAt"] as const;
const LOG = ["id,runId,stepName,level,message,data,timestamp"] as const;

/** The fields of what each route answers: those that are always there, and those that may be. */
const CHECKS: Record<string, (body: unknown) => void> = {
  trigger: (body) => checkFields(body, ["runId,disposition,status"]),
  run: (body) => checkFields(body, RUN),
  steps: (body) => checkEach(body, STEP),
  waits: (body) => checkEach(body, WAIT),
  wait: (body) => checkFields(body, WAIT),
  logs: (body) => checkEach(body, LOG),
  signal: (body) => {
    checkFields(body, ["wait,disposition"]);
    checkFields((body as { wait: unknown }).wait, WAIT);
  },
  retrigger: (body) => checkFields(body, ["success,runId,status"]),
  retry: (body) => checkFields(body, ["success,runId,status"]),
  cancel: (body) => assert.deepEqual(body, { success: true }),
  delete: (body) => assert.deepEqual(body, { success: true }),
  runs: (body) => {
    checkFields(body, ["runs,total,hasMore"]);
    checkEach((body as { runs: unknown }).runs, RUN);
  },
};

// What a message must not tell: stacks, files, statements, the names of tables and classes.
const INTERNALS =
  /\n\s+at |file:\/\/|\/src\/|node_modules|\.ts\b|\b(SELECT|INSERT|UPDATE|DELETE FROM)\b|sqlite|holdfast_|TypeError|RangeError/;

/**
 * Checks that an answer has the form that the contract gives it.
 *
 * @param route The function of the handler that answers; `null` if nobody does.
 */
export function checkForm(route: string | null, { status, headers, text }: RawAnswer): void {
  if (status === 200 && (route === "subscribe" || route === "runsSubscribe")) {
    checkProtection(headers);
    assert.equal(headers.get("content-type"), "text/event-stream");
    assert.equal(headers.get("cache-control"), "no-cache, no-transform");
    return;
  }
  assert.match(headers.get("content-type") ?? "", /^application\/json\b/);
  const body = JSON.parse(text);
  if (status !== 200) return checkRefusal(status, headers, body, text);
  assert.ok(route !== null, "nobody could answer this");
  CHECKS[route]!(body);
  checkProtection(headers);
  assert.equal(headers.get("cache-control"), "no-store");
}

function checkRefusal(status: number, headers: Headers, body: Record<string, unknown>, text: string): void {
  const isOfHook = body.code === HOOK_CODES[status];
  if (!isOfHook) checkProtection(headers);
  const codes = CODES[status] ?? [];
  assert.ok(isOfHook || codes.includes(body.code as string), `${status} with the body ${text}`);
  checkFields(body, status === 400 ? ["error,code", "issues,issuesLeftOut"] : ["error,code"]);
  assert.equal(typeof body.error, "string");
  assert.doesNotMatch(text, INTERNALS);
  for (const issue of (body.issues ?? []) as unknown[]) checkFields(issue, ["path,message"]);
  assert.ok(text.length < 20_000, "a refusal is short");
  assert.equal(headers.has("allow"), status === 405);
}

/** What every Response says that is not a hook's. */
function checkProtection(headers: Headers): void {
  assert.equal(headers.get("cross-origin-resource-policy"), "same-origin");
  assert.equal(headers.get("x-content-type-options"), "nosniff");
}

type Fields = readonly [always: string, sometimes?: string];

function checkEach(list: unknown, fields: Fields): void {
  assert.ok(Array.isArray(list));
  for (const item of list) checkFields(item, fields);
}

function checkFields(value: unknown, [always, sometimes = ""]: Fields): void {
  assert.ok(typeof value === "object" && value !== null && !Array.isArray(value));
  const fields = Object.keys(value);
  const left = fields.filter((field) => !sometimes.split(",").includes(field));
  assert.deepEqual(left.sort(), always.split(",").sort());
}
