import assert from "node:assert/strict";
import { createHandler } from "../../src/http/handler.ts";
import { checkOptions } from "../../src/http/handler_options.ts";
import { aService } from "../support/http/http.ts";

Deno.test("checkOptions() fills in what is left out", () => {
  const { basePath, sseThrottleMs, limits, trustedOrigins } = checkOptions({ limits: { maxStreams: undefined } });

  assert.deepEqual({ basePath, sseThrottleMs, limits, trustedOrigins }, {
    basePath: "",
    sseThrottleMs: 100,
    limits: {
      maxBodyBytes: 1_048_576,
      maxJsonDepth: 64,
      maxStreams: 10_000,
      maxStreamsPerTenant: 1_000,
      maxStreamMs: Infinity,
      maxMetricJobs: 100,
    },
    trustedOrigins: [],
  });
});

Deno.test("checkOptions() takes the smallest and the largest numbers", () => {
  const smallest = {
    maxBodyBytes: 1,
    maxJsonDepth: 1_000,
    maxStreams: 0,
    maxStreamsPerTenant: 0,
    maxStreamMs: 1,
    maxMetricJobs: 0,
  };

  const { sseThrottleMs, limits } = checkOptions({ sseThrottleMs: 0, limits: smallest });

  assert.deepEqual([sseThrottleMs, limits], [0, smallest]);
});

Deno.test("checkOptions() takes durations with a unit", () => {
  const { limits, sseThrottleMs } = checkOptions({ limits: { maxStreamMs: "2h" }, sseThrottleMs: "250ms" });
  assert.deepEqual([limits.maxStreamMs, sseThrottleMs], [7_200_000, 250]);
});

Deno.test("checkOptions() takes origins as browsers write them", () => {
  const trustedOrigins = ["https://app.example", "http://localhost:8080", "http://[::1]:1", "capacitor://localhost"];

  assert.deepEqual(checkOptions({ trustedOrigins }).trustedOrigins, trustedOrigins);
  assert.equal(checkOptions({ trustedOrigins: "*" }).trustedOrigins, "*");
});

const WRONG: [option: string, value: unknown, error: typeof TypeError | typeof RangeError][] = [
  ["auth", null, TypeError],
  ["auth", "token", TypeError],
  ["auth.authenticate", undefined, TypeError],
  ["auth.authenticate", null, TypeError],
  ["auth.onRunAccess", "everybody", TypeError],
  ["basePath", 7, TypeError],
  ["basePath", "api/jobs", TypeError],
  ["onRequest", "soon", TypeError],
  ["onError", {}, TypeError],
  ["sseThrottleMs", "100", TypeError],
  ["sseThrottleMs", -1, RangeError],
  ["sseThrottleMs", 0.5, RangeError],
  ["sseThrottleMs", NaN, RangeError],
  ["sseThrottleMs", Infinity, RangeError],
  ["limits.maxBodyBytes", 0, RangeError],
  ["limits.maxBodyBytes", "1mb", TypeError],
  ["limits.maxJsonDepth", 0, RangeError],
  ["limits.maxJsonDepth", 1_001, RangeError],
  ["limits.maxStreams", -1, RangeError],
  ["limits.maxStreams", null, TypeError],
  ["limits.maxStreamsPerTenant", -1, RangeError],
  ["limits.maxStreamsPerTenant", "all", TypeError],
  ["limits.maxStreamMs", 0, RangeError],
  ["limits.maxStreamMs", 0.5, RangeError],
  ["limits.maxStreamMs", -Infinity, RangeError],
  ["limits.maxStreamMs", null, TypeError],
  ["auth.tenant", "acme", TypeError],
  ["trustedOrigins", "https://app.example", TypeError],
  ["trustedOrigins", ["*"], TypeError],
  ["trustedOrigins", ["null"], TypeError],
  ["trustedOrigins", ["app.example"], TypeError],
  ["trustedOrigins", ["https://app.example/"], TypeError],
  ["trustedOrigins", ["https://APP.example"], TypeError],
  ["trustedOrigins", ["https://app.example:443"], TypeError],
  ["trustedOrigins", [{}], TypeError],
  ["allowedHosts", null, TypeError],
  ["allowedHosts", "localhost", TypeError],
  ["allowedHosts", [7], TypeError],
  ["allowedHosts", [""], TypeError],
  ["allowedHosts", ["*"], TypeError],
  ["allowedHosts", ["*.example.com"], TypeError],
  ["allowedHosts", ["http://localhost"], TypeError],
  ["allowedHosts", ["localhost/"], TypeError],
  ["allowedHosts", ["user@localhost"], TypeError],
  ["allowedHosts", ["::1"], TypeError],
  ["allowedHosts", ["[::1"], TypeError],
  ["allowedHosts", ["localhost:"], TypeError],
  ["allowedHosts", ["localhost:99999"], TypeError],
  ["allowedHosts", ["local host"], TypeError],
];

for (const [option, value, error] of WRONG) {
  Deno.test(`createHandler() refuses ${option}: ${JSON.stringify(value) ?? String(value)}`, async () => {
    await using service = aService();
    const [name, inner] = option.split(".") as [string, string?];
    const inside = name === "auth" ? { authenticate: () => {}, [inner!]: value } : { [inner!]: value };
    const options = { [name]: inner === undefined ? value : inside };

    assert.throws(
      () => createHandler(service.engine, options),
      (thrown) => thrown instanceof error && thrown.message.includes(option),
    );
  });
}

const UNKNOWN: [options: Record<string, unknown>, message: string][] = [
  [{ basepath: "/x" }, 'createHandler() has no option "basepath": did you mean "basePath"?'],
  [{ trusted_origins: [] }, 'createHandler() has no option "trusted_origins": did you mean "trustedOrigins"?'],
  [{ cors: true }, 'createHandler() has no option "cors"'],
  [{ toString: undefined }, 'createHandler() has no option "toString"'],
  [
    { authenticate: () => {} },
    'createHandler() has no option "authenticate": it belongs in auth, { auth: { authenticate } }',
  ],
  [
    { onRunAccess: () => {} },
    'createHandler() has no option "onRunAccess": it belongs in auth, { auth: { onRunAccess } }',
  ],
  [{ maxStreams: 1 }, 'createHandler() has no option "maxStreams": it belongs in limits, { limits: { maxStreams } }'],
  [
    { limits: { maxstreams: 1 } },
    'createHandler() has no option "limits.maxstreams": did you mean "limits.maxStreams"?',
  ],
  [{ limits: { bodies: 1 } }, 'createHandler() has no option "limits.bodies"'],
  [
    new (class {
      basePath = "/api";
      authenticate() {}
    })() as unknown as Record<string, unknown>,
    'createHandler() has no option "authenticate": it belongs in auth, { auth: { authenticate } }',
  ],
  [
    {
      limits: new (class {
        maxSize = 1;
      })(),
    },
    'createHandler() has no option "limits.maxSize"',
  ],
  [[] as unknown as Record<string, unknown>, "The options must be an object"],
  [{ limits: null }, "limits must be an object"],
  [{ limits: 7 }, "limits must be an object"],
  [
    { auth: { authenticate: () => {}, onRunaccess: () => {} } },
    'createHandler() has no option "auth.onRunaccess": did you mean "auth.onRunAccess"?',
  ],
  [{ auth: { authenticate: () => {}, onDelete: () => {} } }, 'createHandler() has no option "auth.onDelete"'],
  [
    { auth: Object.assign(Object.create(null), { authenticate: () => {}, onDelete: () => {} }) },
    'createHandler() has no option "auth.onDelete"',
  ],
  [
    {
      auth: new (class {
        authenticate() {}
        on_trigger() {}
      })(),
    },
    'createHandler() has no option "auth.on_trigger": did you mean "auth.onTrigger"?',
  ],
];

for (const [options, message] of UNKNOWN) {
  Deno.test(`createHandler() refuses what it does not know: ${message}`, async () => {
    await using service = aService();

    assert.throws(() => createHandler(service.engine, options), { name: "TypeError", message });
  });
}

Deno.test("createHandler() takes hooks that are methods of a class, whatever else the class has", async () => {
  await using service = aService();
  class Door {
    readonly users = new Map<string, string>();
    authenticate(): string | undefined {
      return this.users.get("ada");
    }
    onTrigger(): void {}
    onRunAccess(): void {}
    scopeRuns(): object {
      return {};
    }
    lock(): void {}
  }

  createHandler(service.engine, { auth: new Door() });
});

Deno.test("handle() refuses a prefix that does not begin with a slash", async () => {
  await using service = aService();

  const handling = service.handler.handle(new Request("http://localhost/api/runs"), "api");

  await assert.rejects(handling, /^TypeError: basePath must be empty or begin with "\/", such as "\/api\/jobs"$/);
});

Deno.test("createHandler() says that it has no engine", () => {
  for (const engine of [undefined, null, {}]) {
    assert.throws(() => createHandler(engine as never), /^TypeError: The engine was not created by createEngine\(\)$/);
  }
});
