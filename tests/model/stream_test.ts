import assert from "node:assert/strict";
import { ValidationError } from "../../src/model/error.ts";
import { defineStream, formatPlace, parsePlace, streamName } from "../../src/model/stream.ts";

Deno.test("defineStream() checks the name, and freezes the stream", () => {
  const tokens = defineStream<string>("tokens");

  assert.deepEqual(tokens, { name: "tokens" });
  assert.equal(Object.isFrozen(tokens), true);
  for (const name of ["", "a\nb", "x".repeat(256), "\ud800", 7 as unknown as string]) {
    assert.throws(() => defineStream(name), ValidationError);
  }
});

Deno.test("streamName() takes a stream or its name", () => {
  assert.equal(streamName(defineStream("tokens")), "tokens");
  assert.equal(streamName("tokens"), "tokens");
  assert.throws(() => streamName(undefined as unknown as string), ValidationError);
});

Deno.test("parsePlace() reads what formatPlace() writes, and nothing else", () => {
  const place = { position: 12, at: 1_763_900_000_000 };

  assert.equal(formatPlace(place), "0000000000000012-miboimm8");
  assert.deepEqual(parsePlace(formatPlace(place)), place);
  for (const text of ["", "-1", "now", "12-abc", "0000000000000012", "9999999999999999-abc", "0000000000000012-ABC"]) {
    assert.equal(parsePlace(text), null, text);
  }
});

Deno.test("formatPlace() writes places that are sorted as text", () => {
  const places = [9, 10, 100_000_000, 2 ** 52].map((position) => formatPlace({ position, at: 5 }));

  assert.deepEqual(places.toSorted(), places);
});
