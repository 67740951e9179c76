import assert from "node:assert/strict";
import { createEngine } from "../../src/engine/create_engine.ts";
import { type Logger, toLogger, warnOnce } from "../../src/model/logger.ts";
import { StoreError } from "../../src/model/error.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { claimOne, forEachStore, LEASE_MS } from "../support/stores/for_each_store.ts";
import { aJob } from "../support/jobs.ts";

/** A logger that keeps what it gets. */
function aLogger(): { logger: Logger; lines: string[] } {
  const lines: string[] = [];
  const note = (level: string) => (...texts: unknown[]) => void lines.push([level, ...texts].join(" "));
  return { logger: { info: note("info"), warn: note("warn"), error: note("error") }, lines };
}

/** What is printed until it is disposed of. */
function aConsole() {
  const { info, warn, error, log } = console;
  const lines: string[] = [];
  const note = (level: string) => (...texts: unknown[]) => void lines.push([level, ...texts].join(" "));
  Object.assign(console, { info: note("info"), warn: note("warn"), error: note("error"), log: note("log") });
  return { lines, [Symbol.dispose]: () => void Object.assign(console, { info, warn, error, log }) };
}

function openFile(): never {
  throw new RangeError("ENOENT", { cause: new TypeError("the disk is gone") });
}

forEachStore("a logger gets a failed run with its job, its step and the stack", async ({ store, host }) => {
  const { logger, lines } = aLogger();
  const job = aJob((step) => step.run("read", openFile), "import");
  await using engine = createEngine({ store, host, jobs: { job }, logger });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(lines.length, 1);
  const [line] = lines as [string];
  assert.ok(line.startsWith(`error Run "${id}" of job "import" failed in step "read": RangeError: ENOENT\n`), line);
  assert.match(line, /openFile.*logger_test\.ts/);
  assert.match(line, /\nCaused by: TypeError: the disk is gone\n/);
});

forEachStore("a logger gets what a run threw that is no error, and that one was abandoned", async ({ store, host }) => {
  const { logger, lines } = aLogger();
  const job = aJob(() => Promise.reject("boom"), "import");
  await using engine = createEngine({ store, host, jobs: { job }, logger, worker: { maxAbandonments: 1 } });
  const { id: abandoned } = await engine.trigger(job, null);
  await claimOne(store, "import");
  host.advance(LEASE_MS);
  const { id: odd } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.deepEqual(
    lines.toSorted(),
    [
      `error Run "${abandoned}" of job "import" failed: ${(await engine.getRun(abandoned))!.error}`,
      `error Run "${odd}" of job "import" failed: A string was thrown instead of an Error: "boom"`,
    ].sort(),
  );
});

forEachStore(
  "a logger gets nothing of attempts that are followed by others, and of cancelled runs",
  async (context) => {
    const { store, host } = context;
    const { logger, lines } = aLogger();
    const job = aJob((step) =>
      step.run("read", ({ attempt }) => {
        if (attempt < 3) throw new Error("not now");
      }, { retry: { maxAttempts: 3, delay: 0 } })
    );
    await using engine = createEngine({ store, host, jobs: { job }, logger });
    const { id } = await engine.trigger(job, null);
    await engine.cancel((await engine.trigger(job, null)).id);

    await engine.runUntilIdle();

    assert.equal((await engine.getRun(id))!.status, "completed");
    assert.deepEqual(lines, []);
  },
);

forEachStore("a logger gets what listeners and plugins throw", async ({ store, host }) => {
  const { logger, lines } = aLogger();
  const job = aJob((step) => step.log.info("hello"), "import");
  await using engine = createEngine({ store, host, jobs: { job }, logger });
  engine.on("run:start", () => {
    throw new TypeError("broken listener");
  });
  engine.use({
    name: "broken",
    install: ({ on }) => void on("log:write", (() => Promise.reject(new Error("broken plugin"))) as () => void),
  });
  await engine.trigger(job, null);

  await engine.runUntilIdle();
  await host.settle();

  assert.equal(lines.length, 2);
  assert.match(lines[0]!, /^error A listener of "run:start" failed: TypeError: broken listener\n.*logger_test\.ts/s);
  assert.match(lines[1]!, /^error A listener of "log:write" failed: Error: broken plugin\n/);
});

forEachStore("a logger gets worker:error, also of what a plugin could not keep", async ({ store, host }) => {
  const { logger, lines } = aLogger();
  const refusing = new Proxy(store, {
    get: (target, name) => {
      if (name === "appendLogs") return () => Promise.reject(new StoreError("The disk is full", { code: "internal" }));
      const member = target[name as keyof Store];
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
  const job = aJob(() => {}, "import");
  await using engine = createEngine({ store: refusing, host, jobs: { job }, logger });
  engine.use({ name: "keeper", install: ({ on, appendLogs }) => void on("run:start", () => appendLogs([])) });
  await engine.trigger(job, null);

  await engine.runUntilIdle();
  await host.settle();

  assert.equal(lines.length, 1);
  assert.match(lines[0]!, /^error The engine continues after an error: StoreError: The disk is full\n/);
});

forEachStore("a logger that throws, at once or later, harms nothing", async ({ store, host }) => {
  const job = aJob(openFile, "import");
  const failures = [() => openFile(), () => Promise.reject(new Error("later")) as unknown as void];
  for (const error of failures) {
    await using engine = createEngine({ store, host, jobs: { job }, logger: { info() {}, warn() {}, error } });
    const { id } = await engine.trigger(job, null);

    await engine.runUntilIdle();
    await host.settle();

    assert.equal((await engine.getRun(id))!.error, "ENOENT");
  }
});

forEachStore("without a logger failures go to the console, and null keeps it quiet", async ({ store, host }) => {
  const job = aJob(openFile, "import");
  await using loud = createEngine({ store, host, jobs: { job } });
  await using quiet = createEngine({ store, host, jobs: { job }, logger: null });
  using printed = aConsole();
  await loud.trigger(job, null);
  await loud.runUntilIdle();
  const printedByLoud = printed.lines.splice(0);
  await quiet.trigger(job, null);

  await quiet.runUntilIdle();

  assert.equal(printedByLoud.length, 1);
  assert.match(printedByLoud[0]!, /^error Run ".*" of job "import" failed: RangeError: ENOENT\n/);
  assert.deepEqual(printed.lines, []);
});

Deno.test("createEngine() refuses a logger that lacks a function", () => {
  const store = new MemoryStore();
  const loggers: unknown[] = [{}, { info() {}, warn() {} }, "console", 7, { info() {}, warn() {}, error: "yes" }];

  for (const logger of loggers) {
    const create = () => createEngine({ store, jobs: {}, logger: logger as Logger });
    assert.throws(
      create,
      (error: Error) => error instanceof TypeError && /^logger must be null or have/.test(error.message),
    );
  }
  createEngine({ store, jobs: {}, logger: console });
});

Deno.test("warnOnce() logs each warning once, and 1,000 different ones at most", () => {
  const { logger, lines } = aLogger();
  const warn = warnOnce(logger);

  for (let number = 0; number < 1_200; number++) {
    warn(`warning ${number}`);
    warn(`warning ${number}`);
  }

  assert.deepEqual(lines, Array.from({ length: 1_000 }, (_, number) => `warn warning ${number}`));
});

Deno.test("the default log escapes control characters, and indents what comes after a line break", () => {
  using printed = aConsole();

  toLogger(undefined).error('Run "1" failed: \u001b[2J\u202e\rgone\nRun "2" completed\n    at step');

  assert.deepEqual(printed.lines, [
    'error Run "1" failed: \\u001b[2J\\u202e\\rgone\n  Run "2" completed\n    at step',
  ]);
});
