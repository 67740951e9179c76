import assert from "node:assert/strict";
import { ValidationError } from "../../src/model/error.ts";
import { checkInteger } from "../../src/values/integer.ts";

Deno.test("checkInteger() takes the integers of a range, with its ends", () => {
  checkInteger(1, "limit", 1, 3);
  checkInteger(3, "limit", 1, 3);
});

Deno.test("checkInteger() refuses other values, and says what was expected", () => {
  for (const value of [0, 4, 1.5, NaN, Infinity, "2" as never, null as never]) {
    assert.throws(
      () => checkInteger(value, "limit", 1, 3),
      new ValidationError("limit must be an integer from 1 to 3"),
    );
  }
});
