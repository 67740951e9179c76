import assert from "node:assert/strict";
import { aLinkedService } from "../support/http/linked_service.ts";
import { Chance } from "../support/chance.ts";
import { forEachStore } from "../support/stores/for_each_store.ts";

const REQUESTS = 10_000;
const TYPES = [
  "application/x-www-form-urlencoded",
  "application/x-www-form-urlencoded;charset=utf-16",
  "application/json",
  "multipart/form-data; boundary=x",
  "text/plain",
  "",
  "x".repeat(500),
];

forEachStore("10,000 random bodies at /link are no error of the service, and answer no question", async (world) => {
  const errors: unknown[] = [];
  await using service = aLinkedService(world, { onError: (error) => void errors.push(error) });
  const [form, buttons] = [await service.ask1("form"), await service.ask1("ask")];
  const chance = new Chance(41, "bodies at /link");
  const bytes = (length: number) => Uint8Array.from({ length }, () => chance.int(256));
  const pieces = [
    "f0",
    "f1",
    "action",
    "=",
    "&",
    "%",
    "%00",
    "%ff",
    "+",
    "\u0000",
    "true",
    "1e999",
    "__proto__",
    "\n",
    "é",
  ];
  const text = () => Array.from({ length: chance.int(30) }, () => chance.pick(pieces)).join("");
  const bodies = [
    text,
    text,
    () => bytes(chance.int(200)),
    () => "f0=1&".repeat(chance.int(3_000)),
    () => "x".repeat(65_530 + chance.int(20)),
    () => JSON.stringify({ action: text(), f0: chance.next() }),
  ];
  const paths = [
    () => form.path,
    () => buttons.path,
    () => `${form.path}${encodeURIComponent(text())}`,
    () => `/link?t=${encodeURIComponent(text())}`,
    () => `${buttons.path}&${encodeURIComponent(text())}=x`,
  ];
  const statuses = new Map<number, number>();

  for (let n = 0; n < REQUESTS; n++) {
    const method = chance.pick(["POST", "POST", "POST", "GET", "HEAD", "PUT", "OPTIONS"]);
    const body = method === "GET" || method === "HEAD" ? null : chance.pick(bodies)();
    const type = chance.pick(TYPES);
    const path = chance.pick(paths)();
    const { status, body: answer } = await service.handler.fetch(
      new Request(`http://localhost${path}`, { method, body, headers: type === "" ? {} : { "content-type": type } }),
    );
    await answer?.cancel();
    assert.ok(status < 500, `${method} ${path} as ${type}: ${status}`);
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
  }

  assert.deepEqual(errors, []);
  assert.deepEqual([...statuses.keys()].sort(), [200, 400, 404, 405, 413, 415, 422]);
  for (const { id } of [form, buttons]) {
    const [wait] = await service.engine.getWaits(id);
    assert.equal(wait!.status, "pending");
  }
});
