import assert from "node:assert/strict";
import { fitLine, type NewLogEntry } from "../../src/model/log.ts";

type Line = Pick<NewLogEntry, "message" | "data">;

const MAX_BYTES = 8_192;

function bytesOf({ message, data }: Line): number {
  return new TextEncoder().encode(JSON.stringify(message) + (data ?? "")).length;
}

function aText(bytes: number): string {
  return JSON.stringify("x".repeat(bytes - 2));
}

const FITTING: [what: string, line: Line][] = [
  ["a short line", { message: "hello", data: null }],
  ["an empty one", { message: "", data: "null" }],
  ["a line of 8 KiB", { message: "x".repeat(4_000), data: aText(MAX_BYTES - 4_002) }],
  ["a message of 8 KiB", { message: "x".repeat(MAX_BYTES - 2), data: null }],
];

for (const [what, line] of FITTING) {
  Deno.test(`fitLine() leaves ${what} as it is`, () => {
    assert.deepEqual(fitLine(line), line);
  });
}

const CUT: [what: string, line: Line, cut: (line: Line) => void][] = [
  ["a long message", { message: "x".repeat(MAX_BYTES - 1), data: null }, ({ message, data }) => {
    assert.match(message, /^x{8000,}… \(cut\)$/);
    assert.equal(data, null);
  }],
  ["a message of many bytes", { message: "😀".repeat(4_000), data: null }, ({ message }) => {
    assert.match(message, /^(😀){2000,}\uFFFD?… \(cut\)$/u);
  }],
  ["a message of characters that JSON escapes", { message: "\n\u0001".repeat(3_000), data: null }, ({ message }) => {
    assert.match(message, /… \(cut\)$/);
  }],
  ["large data", { message: "hello", data: aText(MAX_BYTES) }, ({ message, data }) => {
    assert.equal(message, "hello");
    assert.deepEqual(JSON.parse(data!), { cut: true, bytes: MAX_BYTES });
  }],
  ["data and a message that are large together", { message: "x".repeat(5_000), data: aText(5_000) }, (line) => {
    assert.equal(line.message, "x".repeat(5_000));
    assert.deepEqual(JSON.parse(line.data!), { cut: true, bytes: 5_000 });
  }],
  ["a long message beside small data", { message: "x".repeat(1_000_000), data: '{"row":3}' }, ({ message, data }) => {
    assert.match(message, /^x{8000,}… \(cut\)$/);
    assert.equal(data, '{"row":3}');
  }],
  ["both, if both are large", { message: "x".repeat(9_000), data: aText(9_000) }, ({ message, data }) => {
    assert.match(message, /^x{8000,}… \(cut\)$/);
    assert.deepEqual(JSON.parse(data!), { cut: true, bytes: 9_000 });
  }],
];

for (const [what, line, check] of CUT) {
  Deno.test(`fitLine() cuts ${what} and says so`, () => {
    const cut = fitLine(line);

    check(cut);
    assert.ok(bytesOf(cut) <= MAX_BYTES && bytesOf(line) > MAX_BYTES);
    assert.deepEqual(fitLine(cut), cut);
  });
}
