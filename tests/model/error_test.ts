import assert from "node:assert/strict";
import { toFailure } from "../../src/model/to_failure.ts";
import {
  ConflictError,
  HoldfastError,
  LeaseLostError,
  NonRetryableError,
  NotFoundError,
  RunCancelledError,
  RunFailedError,
  SerializationError,
  StepError,
  StoreError,
  TimeoutError,
  ValidationError,
  WaitExpiredError,
} from "../../src/model/error.ts";
import type { Failure } from "../../src/model/failure.ts";
import { aFailure } from "../support/fixtures.ts";

const throwing = (member: string) =>
  Object.defineProperty(new Error("fine"), member, {
    get: () => {
      throw new Error("unreadable");
    },
  });

const ODDITIES: [description: string, thrown: unknown, expected: { name: string; message: string }][] = [
  ["an error", new RangeError("too far"), { name: "RangeError", message: "too far" }],
  ["an error without a message", new Error(), { name: "Error", message: "" }],
  ["a string", "boom", other('A string was thrown instead of an Error: "boom"')],
  ["undefined", undefined, other("undefined was thrown instead of an Error")],
  ["null", null, other("null was thrown instead of an Error")],
  ["a number", 7, other("A number was thrown instead of an Error: 7")],
  ["a bigint", 7n, other("A bigint was thrown instead of an Error: 7")],
  ["a symbol", Symbol("odd"), other("A symbol was thrown instead of an Error: Symbol(odd)")],
  ["an object", { code: 7 }, other('An object was thrown instead of an Error: {"code":7}')],
  ["a large array", Array(50_000_000), other("An object was thrown instead of an Error")],
  [
    "a deep array",
    JSON.parse("[".repeat(40_000) + "]".repeat(40_000)),
    other("An object was thrown instead of an Error"),
  ],
  ["a frozen error", Object.freeze(new TypeError("cold")), { name: "TypeError", message: "cold" }],
  ["an error whose name is no text", Object.assign(new Error("a"), { name: 7 }), { name: "Error", message: "a" }],
  ["an error whose name throws", throwing("name"), { name: "Error", message: "fine" }],
  ["an error whose stack throws", throwing("stack"), { name: "Error", message: "fine" }],
  ["an error whose cause throws", throwing("cause"), { name: "Error", message: "fine" }],
  ["a lone surrogate", new Error("x\ud800y"), { name: "Error", message: "x\ufffdy" }],
];

function other(message: string) {
  return { name: "Error", message };
}

for (const [description, thrown, expected] of ODDITIES) {
  Deno.test(`toFailure() describes ${description}`, () => {
    const { kind, name, message, stack, cause } = toFailure(thrown);

    assert.deepEqual({ kind, name, message, cause }, { kind: "error", ...expected, cause: null });
    assert.equal(stack !== null, thrown instanceof Error && description !== "an error whose stack throws");
  });
}

Deno.test("toFailure() keeps the stack, and causes with theirs, also one that is no error", () => {
  const error = new TypeError("outer", { cause: new RangeError("inner", { cause: "root" }) });

  const failure = toFailure(error, "timeout");

  assert.deepEqual(failure, {
    kind: "timeout",
    name: "TypeError",
    message: "outer",
    stack: error.stack,
    cause: {
      kind: "error",
      name: "RangeError",
      message: "inner",
      stack: (error.cause as Error).stack,
      cause: {
        kind: "error",
        name: "Error",
        message: 'A string was given as the cause instead of an Error: "root"',
        stack: null,
        cause: null,
      },
    },
  });
  assert.match(failure.stack!, /error_test\.ts/);
  assert.deepEqual(JSON.parse(JSON.stringify(failure)), failure);
});

Deno.test("toFailure() follows causes to the fifth error, and no cycle", () => {
  let deep = new Error("0");
  for (let i = 1; i < 9; i++) deep = new Error(`${i}`, { cause: deep });
  const first = new Error("first");
  const second = new Error("second", { cause: first });
  first.cause = second;

  assert.deepEqual(messagesOf(toFailure(deep)), ["8", "7", "6", "5", "4"]);
  assert.deepEqual(messagesOf(toFailure(first)), ["first", "second"]);
  assert.deepEqual(messagesOf(toFailure(Object.assign(new Error("own"), { cause: null }))), ["own"]);
});

Deno.test("toFailure() cuts a stack at 8 KiB, and leaves it well-formed", () => {
  for (const text of ["a", "é", "😀", "\0"]) {
    const error = new Error("a");
    error.stack = `x${text.repeat(10_000)}`;

    const { stack } = toFailure(error);

    const { length } = new TextEncoder().encode(stack!);
    assert.ok(length <= 8_192 && length > 8_180 && stack!.isWellFormed(), `${length} bytes`);
  }
});

Deno.test("toFailure() keeps of a StepError what was recorded of the step", () => {
  const failure = toFailure(new RangeError("too late", { cause: "a string" }), "timeout");

  const again = toFailure(new StepError(failure, { name: "read", attempts: 2 }));
  const wrapped = toFailure(new Error("outer", { cause: new StepError(failure, { name: "read", attempts: 2 }) }));

  assert.deepEqual(again, failure);
  assert.deepEqual(messagesOf(wrapped), ["outer", ...messagesOf(failure)]);
});

function messagesOf(failure: Failure): string[] {
  return [failure.message, ...(failure.cause === null ? [] : messagesOf(failure.cause))];
}

const INDESCRIBABLE: [description: string, thrown: unknown][] = [
  ["an error whose message throws", throwing("message")],
  ["an error whose message is no text", Object.defineProperty(new Error(), "message", { value: { a: 1 } })],
  ["an object without prototype", Object.create(null)],
  ["an object whose toString() throws", {
    toString: () => {
      throw new Error("unreadable");
    },
  }],
  [
    "a revoked proxy",
    (() => {
      const { proxy, revoke } = Proxy.revocable(new Error("a"), {});
      revoke();
      return proxy;
    })(),
  ],
  [
    "a proxy that traps everything",
    new Proxy({}, {
      get: () => {
        throw new Error("unreadable");
      },
      getPrototypeOf: () => {
        throw new Error("unreadable");
      },
    }),
  ],
];

for (const [description, thrown] of INDESCRIBABLE) {
  Deno.test(`toFailure() finds words for ${description}`, () => {
    const { name, message } = toFailure(thrown);

    assert.equal(typeof name, "string");
    assert.ok(message.length > 0);
  });
}

Deno.test("toFailure() cuts a message of 10 MB, and leaves it well-formed", () => {
  const { message } = toFailure(new Error("😀".repeat(5_000_000)));
  const odd = toFailure(new Error(`x${"😀".repeat(10_000)}`)).message;

  assert.ok(message.length > 8_000 && message.length < 8_300);
  assert.ok(message.isWellFormed() && odd.isWellFormed());
});

Deno.test("toFailure() cuts a name as well", () => {
  const { name } = toFailure(Object.assign(new Error("a"), { name: "N".repeat(1_000_000) }));

  assert.ok(name.length < 8_300);
});

Deno.test("every error has the code and the name of its class", () => {
  const failure = aFailure({ name: "RangeError", message: "too far" });
  const run = { runId: "id", jobName: "import", stepName: null, failure };
  const errors: [HoldfastError, code: string, name: string][] = [
    [new ValidationError("a"), "invalid_request", "ValidationError"],
    [new ValidationError("a", { code: "invalid_input" }), "invalid_input", "ValidationError"],
    [new NotFoundError("a"), "not_found", "NotFoundError"],
    [new ConflictError("a"), "conflict", "ConflictError"],
    [new ConflictError("a", { code: "key_in_use" }), "key_in_use", "ConflictError"],
    [new WaitExpiredError("a"), "wait_expired", "WaitExpiredError"],
    [new StepError(failure, { name: "read", attempts: 2 }), "step_failed", "RangeError"],
    [new RunFailedError(run), "run_failed", "RunFailedError"],
    [new RunCancelledError("id"), "run_cancelled", "RunCancelledError"],
    [new TimeoutError("a"), "timeout", "TimeoutError"],
    [new SerializationError("a"), "invalid_input", "SerializationError"],
    [new NonRetryableError("a"), "non_retryable", "NonRetryableError"],
    [new LeaseLostError({ runId: "id", generation: 3 }), "lease_lost", "LeaseLostError"],
    [new StoreError("a"), "unavailable", "StoreError"],
    [new StoreError("a", { code: "internal" }), "internal", "StoreError"],
  ];

  for (const [error, code, name] of errors) {
    assert.ok(error instanceof HoldfastError && error instanceof Error);
    assert.deepEqual([error.code, error.name], [code, name]);
    assert.ok(!error.message.endsWith("."), error.message);
  }
});

Deno.test("errors keep their cause and their particulars", () => {
  const cause = new Error("behind");
  const issues = [{ path: ["a", 1], message: "no" }];

  assert.equal(new NotFoundError("a", { cause }).cause, cause);
  assert.equal(new ConflictError("a", { cause }).cause, cause);
  assert.deepEqual(new ValidationError("a", { issues, cause }).issues, issues);
  assert.deepEqual(new ValidationError("a").issues, []);
  assert.equal(new StoreError("a").outcomeUnknown, false);
  assert.equal(new StoreError("a", { outcomeUnknown: true, cause }).outcomeUnknown, true);
  const step = new StepError(aFailure({ name: "E", message: "m" }), { name: "read#2", attempts: 3 });
  assert.deepEqual([step.stepName, step.attempts, step.message], ["read#2", 3, "m"]);
});

Deno.test("StepError shows the recorded stack and cause", () => {
  const failure = toFailure(new RangeError("too far", { cause: new TypeError("why") }));

  const error = new StepError(failure, { name: "read", attempts: 1 });

  assert.equal(error.stack, failure.stack);
  assert.deepEqual(error.failure, failure);
  assert.ok(error.cause instanceof Error);
  const { name, message, stack } = error.cause;
  assert.deepEqual({ name, message, stack }, { name: "TypeError", message: "why", stack: failure.cause!.stack });
  assert.equal(new StepError(aFailure({ stack: null }), { name: "read", attempts: 1 }).stack, "Error: no");
});

Deno.test("RunFailedError names job, step and what was wrong, and has that as its cause", () => {
  const failure = toFailure(new RangeError("ENOENT", { cause: "no file" }));

  const ofStep = new RunFailedError({ runId: "id", jobName: "import", stepName: "read", failure });
  const ofJob = new RunFailedError({ runId: "id", jobName: "import", stepName: null, failure });
  const unworded = aFailure({ name: "AbortError", message: "" });

  assert.equal(ofStep.message, 'Run "id" of job "import" failed in step "read": ENOENT');
  assert.equal(ofJob.message, 'Run "id" of job "import" failed: ENOENT');
  assert.match(
    new RunFailedError({ runId: "id", jobName: "j", stepName: null, failure: unworded }).message,
    /AbortError$/,
  );
  assert.deepEqual([ofStep.runId, ofStep.jobName, ofStep.stepName, ofJob.stepName], ["id", "import", "read", null]);
  const { name, message, stack, cause } = ofStep.cause as Error;
  assert.deepEqual([name, message, stack], ["RangeError", "ENOENT", failure.stack]);
  assert.match((cause as Error).message, /no file/);
});

Deno.test("a ValidationError says what was refused, and names the first issues", () => {
  const issues = Array.from({ length: 7 }, (_, at) => ({ path: at === 0 ? [] : ["rows", at], message: `no ${at}` }));

  const few = new ValidationError("The input does not fit", { issues: issues.slice(0, 2) });
  const many = new ValidationError("The input does not fit", { issues, issuesLeftOut: 3 });

  assert.equal(few.message, "The input does not fit: no 0; rows.1: no 1");
  assert.equal(
    many.message,
    "The input does not fit: no 0; rows.1: no 1; rows.2: no 2; rows.3: no 3; rows.4: no 4; and 5 more",
  );
  assert.deepEqual([many.summary, many.issues, many.issuesLeftOut], ["The input does not fit", issues, 3]);
  assert.deepEqual([new ValidationError("no").message, new ValidationError("no").issuesLeftOut], ["no", 0]);
});
