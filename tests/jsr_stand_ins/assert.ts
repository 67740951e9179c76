// Has the functions of jsr:@std/assert that the tests in tests/jsr use.
import assert from "node:assert/strict";

/** Both are equal, in depth. */
export function assertEquals<T>(actual: T, expected: T): void {
  assert.deepEqual(structuredClone(actual), structuredClone(expected)); // rows may have no prototype there
}

/** It is rejected with an error of this class, whose message includes this. */
export async function assertRejects<E extends Error>(
  fn: () => PromiseLike<unknown>,
  // deno-lint-ignore no-explicit-any -- any class of errors
  ErrorClass: abstract new (...args: any[]) => E,
  msgIncludes = "",
): Promise<E> {
  try {
    await fn();
  } catch (error) {
    assert.ok(error instanceof ErrorClass, `${error}`);
    assert.ok(error.message.includes(msgIncludes), error.message);
    return error;
  }
  throw new assert.AssertionError({ message: "It was not rejected" });
}
