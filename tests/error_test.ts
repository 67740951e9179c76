import assert from "node:assert/strict";
import {
  ConflictError,
  describeFailure,
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
} from "../src/error.ts";

const throwing = (member: string) =>
  Object.defineProperty(new Error("fine"), member, {
    get: () => {
      throw new Error("unreadable");
    },
  });

const ODDITIES: [description: string, thrown: unknown, expected: { name: string; message: string }][] = [
  ["an error", new RangeError("too far"), { name: "RangeError", message: "too far" }],
  ["an error without a message", new Error(), { name: "Error", message: "" }],
  ["a string", "text", { name: "Error", message: "text" }],
  ["undefined", undefined, { name: "Error", message: "undefined" }],
  ["null", null, { name: "Error", message: "null" }],
  ["a number", 7, { name: "Error", message: "7" }],
  ["a bigint", 7n, { name: "Error", message: "7" }],
  ["a symbol", Symbol("odd"), { name: "Error", message: "Symbol(odd)" }],
  ["a frozen error", Object.freeze(new TypeError("cold")), { name: "TypeError", message: "cold" }],
  ["an error whose name is no text", Object.assign(new Error("a"), { name: 7 }), { name: "Error", message: "a" }],
  ["an error whose name throws", throwing("name"), { name: "Error", message: "fine" }],
  ["a lone surrogate", new Error("x\ud800y"), { name: "Error", message: "x\ufffdy" }],
];

for (const [description, thrown, expected] of ODDITIES) {
  Deno.test(`describeFailure() describes ${description}`, () => {
    assert.deepEqual(describeFailure(thrown), expected);
  });
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
  Deno.test(`describeFailure() finds words for ${description}`, () => {
    const { name, message } = describeFailure(thrown);

    assert.equal(typeof name, "string");
    assert.ok(message.length > 0);
  });
}

Deno.test("describeFailure() cuts a message of 10 MB, and leaves it well-formed", () => {
  const { message } = describeFailure(new Error("😀".repeat(5_000_000)));
  const odd = describeFailure(new Error(`x${"😀".repeat(10_000)}`)).message;

  assert.ok(message.length > 8_000 && message.length < 8_300);
  assert.ok(message.isWellFormed() && odd.isWellFormed());
});

Deno.test("describeFailure() cuts a name as well", () => {
  const { name } = describeFailure(Object.assign(new Error("a"), { name: "N".repeat(1_000_000) }));

  assert.ok(name.length < 8_300);
});

Deno.test("every error has the code and the name of its class", () => {
  const failure = { name: "RangeError", message: "too far" };
  const errors: [HoldfastError, code: string, name: string][] = [
    [new ValidationError("a"), "invalid_request", "ValidationError"],
    [new ValidationError("a", { code: "invalid_input" }), "invalid_input", "ValidationError"],
    [new NotFoundError("a"), "not_found", "NotFoundError"],
    [new ConflictError("a"), "conflict", "ConflictError"],
    [new ConflictError("a", { code: "key_in_use" }), "key_in_use", "ConflictError"],
    [new WaitExpiredError("a"), "wait_expired", "WaitExpiredError"],
    [new StepError(failure, { name: "read", attempts: 2 }), "step_failed", "RangeError"],
    [new RunFailedError("id", "a"), "run_failed", "RunFailedError"],
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
  assert.equal(new RunFailedError("id", "a").runId, "id");
  assert.equal(new StoreError("a").outcomeUnknown, false);
  assert.equal(new StoreError("a", { outcomeUnknown: true, cause }).outcomeUnknown, true);
  const step = new StepError({ name: "E", message: "m" }, { name: "read#2", attempts: 3 });
  assert.deepEqual([step.stepName, step.attempts, step.message], ["read#2", 3, "m"]);
});
