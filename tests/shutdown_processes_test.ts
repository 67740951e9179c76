import assert from "node:assert/strict";
import { type Engine, shutdownOnSignal, type ShutdownOptions } from "../mod.ts";
import { defaultSignals } from "../src/engine/shutdown_on_signal.ts";
import { Child } from "./processes/child.ts";
import { inTime } from "./processes/deadline.ts";
import { needs } from "./support/platform.ts";

/** Begins to read all events, and resolves when the server has answered. */
async function watch(url: string): Promise<ReadableStreamDefaultReader<Uint8Array>> {
  const response = await fetch(`${url}/runs/subscribe`);
  assert.equal(response.status, 200);
  return response.body!.getReader();
}

/** Reads to the end of a stream. */
async function drain(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for (let read = await reader.read(); !read.done; read = await reader.read()) text += decoder.decode(read.value);
  return text;
}

async function trigger(url: string): Promise<void> {
  const response = await fetch(`${url}/trigger`, { method: "POST", body: '{"jobName":"job","input":{}}' });
  assert.equal(response.status, 200);
  await response.body?.cancel();
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  Deno.test(
    `Deno.serve() with open streams ends after ${signal}, and the process with code 0`,
    needs("signals"),
    async () => {
      await using child = new Child("stopping_server.ts");
      const { url } = await child.hear("listens") as unknown as { url: string };
      const reader = await watch(url);
      await trigger(url);
      await child.hear("working");

      const status = await child.end(signal);

      assert.deepEqual([status.code, status.signal], [0, null]);
      await child.hear("completed"); // what was being executed came to its end
      await child.hear("stopped");
      const events = await inTime(drain(reader), "the stream was to end");
      assert.match(events, /run:complete|run:start/);
    },
  );
}

Deno.test("Deno.serve() refuses new connections as soon as there is a signal", needs("signals"), async () => {
  await using child = new Child("stopping_server.ts", "hangs");
  const { url } = await child.hear("listens") as unknown as { url: string };
  await trigger(url);
  await child.hear("working");

  child.signal("SIGTERM");
  await child.hear("signalled");

  await assert.rejects(inTime(untilRefused(url), "the server was to refuse"), TypeError);
});

/** Asks until a connection is refused, each time over a new one. */
async function untilRefused(url: string): Promise<never> {
  while (true) {
    using client = Deno.createHttpClient({ poolMaxIdlePerHost: 0 });
    await (await fetch(`${url}/runs`, { client })).body?.cancel();
  }
}

Deno.test("shutdownOnSignal() does not wait for a client that does not read its answer", needs("signals"), async () => {
  await using child = new Child("stopping_server.ts", "large");
  const { url } = await child.hear("listens") as unknown as { url: string };
  using connection = await Deno.connect({ hostname: "127.0.0.1", port: Number(new URL(url).port) });
  await connection.write(new TextEncoder().encode("GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n"));
  await connection.read(new Uint8Array(1)); // the answer has begun

  child.signal("SIGTERM");

  await child.hear("stopped");
});

Deno.test(
  "a second signal ends a process whose shutdown takes long, with the exit code of a shell",
  needs("signals"),
  async () => {
    await using child = new Child("stopping_server.ts", "hangs");
    const { url } = await child.hear("listens") as unknown as { url: string };
    await trigger(url);
    await child.hear("working");

    child.signal("SIGTERM");
    await child.hear("signalled");
    const signalling = setInterval(() => child.signal("SIGTERM"), 200);
    const status = await child.hasEnded();
    clearInterval(signalling);

    assert.equal(status.code, 143);
  },
);

Deno.test(
  "a signal that a process gets twice, as from `deno task`, stops it in good order",
  needs("signals"),
  async () => {
    await using child = new Child("stopping_server.ts");
    const { url } = await child.hear("listens") as unknown as { url: string };
    await trigger(url);
    await child.hear("working");

    child.signal("SIGINT");
    await child.hear("signalled");
    const status = await child.end("SIGINT");

    assert.deepEqual([status.code, status.signal], [0, null]);
    await child.hear("completed");
  },
);

Deno.test("shutdownOnSignal() no longer listens when all has stopped", needs("signals"), async () => {
  await using child = new Child("stopping_server.ts", "stays");
  await child.hear("listens");
  child.signal("SIGTERM");
  await child.hear("stopped");

  const status = await child.end("SIGTERM");

  assert.equal(status.signal, "SIGTERM");
});

Deno.test("shutdownOnSignal() listens to the signals that the system has", () => {
  assert.deepEqual(["linux", "darwin", "win32"].map(defaultSignals), [
    ["SIGINT", "SIGTERM"],
    ["SIGINT", "SIGTERM"],
    ["SIGINT", "SIGBREAK"],
  ]);
});

Deno.test("shutdownOnSignal() refuses at once what is no engine", async () => {
  const engine = { engine: { stop: () => Promise.resolve() } } as unknown as Pick<Engine, "stop">;

  await assert.rejects(shutdownOnSignal(engine), /^TypeError: shutdownOnSignal\(\) needs an engine, not an object$/);
  await assert.rejects(
    shutdownOnSignal(undefined as never),
    /^TypeError: shutdownOnSignal\(\) needs an engine, not undefined$/,
  );
});

const WRONG: [options: Record<string, unknown>, message: RegExp][] = [
  [{ signals: ["SIGTERM", "SIGKILL"] }, /SIGKILL/],
  [{ servers: [] }, /^shutdownOnSignal\(\) has no option "servers"; it has server, signals, timeout$/],
  [{ server: {} }, /^The server of shutdownOnSignal\(\) must be that of Deno\.serve\(\) or .*, not an object$/],
  [{ server: null }, /^The server of shutdownOnSignal\(\) .*, not null$/],
  [{ signals: ["SIGNONE"] }, /^shutdownOnSignal\(\): unknown signal "SIGNONE"$/],
  [{ timeout: "8 steps" }, /^The timeout of shutdownOnSignal\(\) must be .*milliseconds.*"8 steps"/],
];

for (const [options, message] of WRONG) {
  Deno.test(`shutdownOnSignal() refuses ${JSON.stringify(options)}`, async () => {
    const refused = shutdownOnSignal({ stop: () => Promise.resolve() }, options as ShutdownOptions);

    await assert.rejects(refused, { name: "TypeError", message });
  });
}
