import assert from "node:assert/strict";
import { signedLinks } from "../../src/links/signed_links.ts";
import type { Wait } from "../../src/model/wait.ts";
import { Chance } from "../support/chance.ts";

const KEY = "a key of links for the tests, 2026";
const OTHER = "another key of links for the tests, 2025";
const URL_OF_HANDLER = "https://app.example.com/api/jobs";

function aWait(overrides: Partial<Wait> = {}): Wait {
  return {
    id: "wait",
    runId: "0190a7c0-0000-7000-8000-000000000001",
    name: "approve",
    metadata: { actions: [{ label: "Yes", payload: true }, { label: "No", payload: false }] },
    status: "pending",
    outcome: null,
    payload: null,
    signalId: null,
    signalledBy: null,
    createdAt: "2040-01-01T00:00:00.000Z",
    deadlineAt: "2040-01-08T00:00:00.001Z",
    suspendedAt: null,
    resolvedAt: null,
    firstResumedAt: null,
    ...overrides,
  };
}

async function aToken(keys = [KEY], options = {}, wait = aWait()): Promise<string> {
  const link = await signedLinks({ keys, url: URL_OF_HANDLER }).toWait(wait, options);
  return new URL(link).searchParams.get("t")!;
}

Deno.test("a link says which wait it is for, for whom, and until when", async () => {
  const links = signedLinks({ keys: [KEY], url: `${URL_OF_HANDLER}/` });

  const link = await links.toWait(aWait(), { for: "ada@example.com" });

  assert.equal(link.split("?")[0], `${URL_OF_HANDLER}/link`);
  const token = new URL(link).searchParams.get("t")!;
  const { signalId, ...said } = (await links.read(token))!;
  assert.deepEqual(said, {
    runId: aWait().runId,
    waitName: "approve",
    for: "ada@example.com",
    actions: null,
    expiresAt: "2040-01-08T00:00:01.000Z",
  });
  assert.equal(signalId, `link/${token.split(".")[2]!.slice(0, 22)}`);
  assert.ok(token.length <= 170, `${token.length} characters`);
});

Deno.test("a link expires with its wait, or before, and a wait without a deadline needs a date", async () => {
  const links = signedLinks({ keys: [KEY], url: URL_OF_HANDLER });
  const ends = async (wait: Wait, expiresAt?: Date) => {
    const link = await links.toWait(wait, expiresAt === undefined ? {} : { expiresAt });
    return (await links.read(new URL(link).searchParams.get("t")!))!.expiresAt;
  };

  assert.equal(await ends(aWait(), new Date("2040-01-02")), "2040-01-02T00:00:00.000Z");
  assert.equal(await ends(aWait(), new Date("2041-01-01")), "2040-01-08T00:00:01.000Z");
  assert.equal(await ends(aWait({ deadlineAt: null }), new Date("2041-01-01")), "2041-01-01T00:00:00.000Z");
  await assert.rejects(
    ends(aWait({ deadlineAt: null })),
    /^TypeError: Wait "approve" has no deadline: give expiresAt$/,
  );
  await assert.rejects(ends(aWait(), new Date(NaN)), /expiresAt must be a date/);
});

Deno.test("toWait() refuses what nobody could answer, and what is no option", async () => {
  const links = signedLinks({ keys: [KEY], url: URL_OF_HANDLER });
  const refusals: [wait: unknown, options: object, message: RegExp][] = [
    [
      aWait(),
      { actions: ["Maybe"] },
      /actions of a link must be labels of metadata.actions of wait "approve", not "Maybe"/,
    ],
    [aWait(), { actions: [] }, /must be labels/],
    [aWait(), { for: "a\nb" }, /^TypeError: for must be a string of 1 to 255/],
    [aWait(), { to: "ada" }, /toWait\(\) has no option "to"/],
    [aWait({ metadata: null }), {}, /Wait "approve" cannot be answered by a link: .* of up to 8,192 characters$/],
    [aWait({ metadata: null, payloadSchema: { type: "array" } }), {}, /cannot be answered by a link/],
    [undefined, {}, /toWait\(\) needs a wait/],
  ];
  for (const [wait, options, message] of refusals) {
    await assert.rejects(links.toWait(wait as Wait, options), message);
  }
  await links.toWait(
    aWait({ metadata: null, payloadSchema: { type: "object", properties: { ok: { type: "boolean" } } } }),
  );
  const long = Array.from({ length: 8 }, (_, n) => ({ label: `${n}`.repeat(255), payload: n }));
  const labels = long.map(({ label }) => label);
  await assert.rejects(links.toWait(aWait({ metadata: { actions: long } }), { actions: labels }), /is too long/);
});

Deno.test("signedLinks() refuses weak keys and addresses that are not those of a handler", () => {
  const make = (keys: unknown, url: unknown = URL_OF_HANDLER) => () => signedLinks({ keys, url } as never);
  const KEYS =
    /^TypeError: keys must be 1 to 10 strings of at least 32 characters: make one with crypto.randomUUID\(\) twice$/;
  for (const keys of [undefined, [], KEY, [KEY.slice(0, 31)], [7], Array(11).fill(KEY), ["x".repeat(1_025)]]) {
    assert.throws(make(keys), KEYS);
  }
  assert.throws(make([KEY, KEY]), /keys must be different/);
  for (
    const url of [
      null,
      "",
      "/api",
      "http://app.example.com",
      "https://a/?x",
      "https://a/#",
      "ftp://a",
      "https://u:p@a/",
    ]
  ) {
    assert.throws(make([KEY], url), /^TypeError: url must be the address of the handler/, String(url));
  }
  for (const url of ["http://localhost:8000", "http://127.0.0.1/api", "http://[::1]:1/x/"]) make([KEY], url)();
});

Deno.test("a former key stays valid, and a removed one is not", async () => {
  const token = await aToken([OTHER]);

  const rotated = signedLinks({ keys: [KEY, OTHER], url: URL_OF_HANDLER });
  const removed = signedLinks({ keys: [KEY], url: URL_OF_HANDLER });

  assert.equal((await rotated.read(token))?.waitName, "approve");
  assert.equal(await removed.read(token), null);
  assert.notEqual((await aToken([KEY])).slice(0, 6), token.slice(0, 6));
});

Deno.test("a token of which anything was changed is not valid", async () => {
  const links = signedLinks({ keys: [KEY], url: URL_OF_HANDLER });
  const token = await aToken([KEY], { for: "ada", actions: ["Yes"] });
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  assert.notEqual(await links.read(token), null);

  for (let at = 0; at < token.length; at++) {
    const index = alphabet.indexOf(token[at]!);
    for (const bit of index === -1 ? [] : [1, 2, 4, 8, 16, 32]) {
      const changed = token.slice(0, at) + alphabet[index ^ bit] + token.slice(at + 1);
      assert.equal(await links.read(changed), null, `${at}`);
    }
  }
  for (
    const changed of [
      token.slice(0, -1),
      `${token}A`,
      `${token}=`,
      `${token}.`,
      ` ${token}`,
      token.replace(".", ""),
      "",
    ]
  ) {
    assert.equal(await links.read(changed), null, changed);
  }
});

Deno.test("10,000 random tokens are not valid, and none throws", async () => {
  const links = signedLinks({ keys: [KEY], url: URL_OF_HANDLER });
  const token = await aToken();
  const chance = new Chance(7, "tokens", 0);
  const alphabet = "AZaz09-_.%= \u0000é🙂";

  for (let n = 0; n < 10_000; n++) {
    const random = n % 2 === 0
      ? Array.from(
        { length: Math.floor(chance.next() * 300) },
        () => alphabet[Math.floor(chance.next() * alphabet.length)],
      ).join("")
      : token.split(".").map((part) => chance.next() < 0.5 ? part : part.slice(Math.floor(chance.next() * 5) + 1)).join(
        ".",
      );
    if (random !== token) assert.equal(await links.read(random), null, random);
  }
  for (const wrong of [undefined, null, 7, {}, "x".repeat(1_000_000)]) {
    assert.equal(await links.read(wrong as string), null);
  }
});

Deno.test("a link is made and read at once, without a thread", async () => {
  const links = signedLinks({ keys: [KEY, OTHER], url: URL_OF_HANDLER });
  let turns = 0;
  const immediate = setImmediate(() => turns += 1);

  const { searchParams } = new URL(await links.toWait(aWait()));
  const link = await links.read(searchParams.get("t")!);

  assert.equal(link?.waitName, aWait().name);
  assert.equal(turns, 0);
  clearImmediate(immediate);
});
