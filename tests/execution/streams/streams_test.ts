import assert from "node:assert/strict";
import type { Engine } from "../../../src/engine/engine.ts";
import {
  ConflictError,
  RunCancelledError,
  SerializationError,
  StoreError,
  TimeoutError,
} from "../../../src/model/error.ts";
import type { StepContext } from "../../../src/model/job.ts";
import { type Chunk, defineStream } from "../../../src/model/stream.ts";
import type { Store } from "../../../src/store/store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aJob } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { forEachStore, forever, LEASE_MS, pass, type StoreTest } from "../../support/stores/for_each_store.ts";

const tokens = defineStream<string>("tokens");

type Body = (step: StepContext, input: unknown) => unknown;

/** Executes a job once, and answers the run and the items of its stream that count. */
async function perform({ store, host }: StoreTest, run: Body, options: { maxStreamBytes?: number } = {}) {
  await using engine = createEngine({ store, host, jobs: { job: aJob(run) }, ...options });
  const { id } = await engine.trigger("job", null);
  await engine.runUntilIdle();
  const { status, error, output } = (await engine.getRun(id))!;
  return { id, status, error, output, items: await itemsOf(engine, id) };
}

/** The items that count now. */
async function itemsOf(engine: Pick<Engine, "readStream">, runId: string): Promise<unknown[]> {
  const all: unknown[] = [];
  for await (const { from, items } of engine.readStream(runId, tokens, { follow: false })) {
    all.splice(from, Infinity, ...items);
  }
  return all;
}

/** The same store with some of its calls replaced. */
function withCalls(store: Store, calls: Partial<Store>): Store {
  return new Proxy(store, {
    get: (target, name) => {
      const call = calls[name as keyof Store] ?? Reflect.get(target, name, target);
      return typeof call === "function" ? call.bind(target) : call;
    },
  });
}

/** Waits until a condition holds, and lets time pass meanwhile. */
async function until(host: FakeHost, holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let tries = 0; !(await holds()); tries++) {
    assert.ok(tries < 1_000, "the condition never held");
    await pass(host, 10);
  }
}

/** A gate that opens once. */
function aGate() {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}

forEachStore("the items of a step that completed are in its stream, once and in order", async (context) => {
  const { status, items } = await perform(context, (step) =>
    step.run("say", async ({ stream }) => {
      const writer = stream(tokens);
      await writer.write("a");
      writer.write("b"); // given before the function settled
      await stream("tokens").write("c");
    }));

  assert.equal(status, "completed");
  assert.deepEqual(items, ["a", "b", "c"]);
});

forEachStore("pipe() writes all that a source yields, and steps one after another append", async (context) => {
  const { items } = await perform(context, async (step) => {
    await step.run("first", ({ stream }) => stream(tokens).pipe(ReadableStream.from(["a", "b"])));
    await step.run("second", ({ stream }) => stream(tokens).pipe(ReadableStream.from(["c"])));
  });

  assert.deepEqual(items, ["a", "b", "c"]);
});

forEachStore("items are visible while the step is executed", async ({ store, host }) => {
  const gate = aGate();
  const job = aJob((step) =>
    step.run("say", async ({ stream }) => {
      await stream(tokens).write("a");
      await gate.opened;
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  const done = engine.runUntilIdle();

  await until(host, async () => (await itemsOf(engine, id)).length > 0);

  assert.deepEqual((await engine.getStreams(id)).map(({ items, isOpen }) => [items, isOpen]), [[1, true]]);
  gate.open();
  await done;
  assert.deepEqual((await engine.getStreams(id)).map(({ items, isOpen }) => [items, isOpen]), [[1, false]]);
});

forEachStore("the first item of a stream does not wait for those that others stream", async ({ store, host }) => {
  const calls: { at: number; runIds: string[] }[] = [];
  const observed = withCalls(store, {
    appendItems: (writes) => {
      calls.push({ at: host.monotonic(), runIds: writes.map(({ lease }) => lease.runId) });
      return store.appendItems(writes);
    },
  });
  const gate = aGate();
  let isOver = false;
  let writtenAt = 0;
  const steady = aJob((step) =>
    step.run("say", async ({ stream }) => {
      while (!isOver) {
        await stream(tokens).write("a");
        await pass(host, 1);
      }
    }), "steady");
  const single = aJob((step) =>
    step.run("say", async ({ stream }) => {
      writtenAt = host.monotonic();
      await stream(tokens).write("b");
      await gate.opened;
    }), "single");
  await using engine = createEngine({ store: observed, host, jobs: { steady, single } });
  await engine.trigger("steady", null);
  await engine.start();
  await until(host, () => calls.length > 4);
  const { id } = await engine.trigger("single", null);

  await until(host, () => calls.some(({ runIds }) => runIds.includes(id)));
  await until(host, () => calls.length > 10);
  isOver = true;
  gate.open();

  const at = calls.findIndex(({ runIds }) => runIds.includes(id));
  assert.ok(calls[at]!.at - writtenAt <= 20, `it took ${calls[at]!.at - writtenAt} ms`);
  const others = calls.slice(at + 1).map((call, n) => call.at - calls[at + n]!.at);
  assert.ok(others.every((ms) => ms >= 50), `the intervals are ${others.join(", ")} ms`);
});

forEachStore("the items of an attempt that is followed by another do not count", async (context) => {
  const { host } = context;
  const seen: unknown[] = [];
  const { items } = await perform(context, (step) =>
    step.run("say", async ({ stream, attempt }) => {
      await stream(tokens).write(`${attempt}a`);
      await pass(host, 60);
      await stream(tokens).write(`${attempt}b`);
      seen.push(attempt);
      if (attempt < 3) throw new Error("broken");
    }, { retry: { maxAttempts: 3, delay: 0 } }));

  assert.deepEqual(seen, [1, 2, 3]);
  assert.deepEqual(items, ["3a", "3b"]);
});

forEachStore("an attempt that writes nothing leaves none of the items of the one before it", async (context) => {
  const { status, items } = await perform(context, (step) =>
    step.run("say", async ({ stream, attempt }) => {
      if (attempt === 2) return;
      await stream(tokens).write("a");
      await pass(context.host, 60);
      throw new Error("broken");
    }, { retry: { maxAttempts: 2, delay: 0 } }));

  assert.equal(status, "completed");
  assert.deepEqual(items, []);
});

forEachStore("what a process has written that died is void once its run is claimed again", async ({ store, host }) => {
  const elsewhere = new FakeHost();
  const job = aJob((step) =>
    step.run("say", async ({ stream }) => {
      const writer = stream(tokens);
      await writer.write(`${step.execution}a`);
      if (step.execution === 1) await forever();
      await writer.write(`${step.execution}b`);
    })
  );
  const dead = createEngine({ store, host: elsewhere, jobs: { job } });
  const { id } = await dead.trigger("job", null);
  dead.runUntilIdle().catch(() => {});
  for (let at = 0; (await itemsOf(dead, id)).length === 0 && at < 100; at++) await pass(elsewhere, 10);
  assert.deepEqual(await itemsOf(dead, id), ["1a"]);
  host.advance(LEASE_MS + 1_000);

  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.runUntilIdle();

  assert.deepEqual(await itemsOf(engine, id), ["2a", "2b"]);
});

forEachStore("the items of a step that failed for good stay until another step writes", async (context) => {
  let left: unknown[] = [];
  const say = (step: StepContext, name: string, fails: boolean) =>
    step.run(name, async ({ stream }) => {
      await stream(tokens).write(name);
      if (fails) throw new Error("broken");
    });

  const { items } = await perform(context, async (step) => {
    await say(step, "good", false);
    await say(step, "bad", true).catch(() => {});
    left = JSON.parse((await context.store.readStream(step.runId, "tokens", null, 1_000))!.chunks.at(-1)!.items);
    await say(step, "fallback", false);
  });

  assert.deepEqual(left, ["bad"]);
  assert.deepEqual(items, ["good", "fallback"]);
});

forEachStore(
  "a run that fails keeps the items of the step that failed, one that completes does not",
  async (context) => {
    const say = (step: StepContext) =>
      step.run("say", async ({ stream }) => {
        await stream(tokens).write("half");
        throw new Error("broken");
      });

    const failed = await perform(context, say);
    const completed = await perform(context, (step) => say(step).catch(() => "handled"));

    assert.deepEqual([failed.status, failed.items], ["failed", ["half"]]);
    assert.deepEqual([completed.status, completed.items], ["completed", []]);
  },
);

forEachStore("a cancel keeps the items that were visible, and ends the writer", async ({ store, host }) => {
  const ended = Promise.withResolvers<unknown>();
  const job = aJob((step) =>
    step.run("say", async ({ stream, abortSignal }) => {
      await stream(tokens).write("half");
      await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
      await stream(tokens).write("late").catch(ended.resolve);
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  const done = engine.runUntilIdle();
  await until(host, async () => (await itemsOf(engine, id)).length > 0);

  await engine.cancel(id);

  await done;
  assert.ok(await ended.promise instanceof RunCancelledError);
  assert.deepEqual(await itemsOf(engine, id), ["half"]);
});

forEachStore("stop() makes the items of a step void whose lease it releases", async ({ store, host }) => {
  const job = aJob((step) =>
    step.run("say", async ({ stream, abortSignal }) => {
      await stream(tokens).write("half");
      await new Promise((_, reject) => abortSignal.addEventListener("abort", () => reject(abortSignal.reason)));
    })
  );
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  const done = engine.runUntilIdle();
  await until(host, async () => (await itemsOf(engine, id)).length > 0);

  const stopped = engine.stop({ timeout: 10 });
  await pass(host, 1_000);
  await stopped;
  await done;

  assert.deepEqual(await itemsOf(engine, id), []);
});

forEachStore("two steps that run side by side cannot write to one stream", async (context) => {
  const gate = aGate();
  const { status, error, items } = await perform(context, async (step) => {
    const first = step.run("first", async ({ stream }) => {
      await stream(tokens).write("a");
      await gate.opened;
    });
    const second = step.run("second", ({ stream }) => stream(tokens).write("b")).finally(gate.open);
    await Promise.all([first, second]);
  });

  assert.equal(status, "failed");
  assert.match(
    error!,
    /^Stream "tokens" is being written by step "first": give steps that run side by side streams of/,
  );
  assert.deepEqual(items, ["a"]);
});

forEachStore("an item that cannot be stored fails the attempt, although nobody awaits it", async (context) => {
  const big = "x".repeat(262_144);
  for (
    const [item, message] of [
      [undefined, 'Item 1 of stream "tokens" is undefined'],
      [{ n: 1n }, 'Item 1 of stream "tokens"'],
      [big, 'Item 1 of stream "tokens" is too large'],
    ] as const
  ) {
    const { status, error } = await perform(context, (step) =>
      step.run("say", ({ stream }) => {
        stream<unknown>("tokens").write("a");
        stream<unknown>("tokens").write(item);
        return "fine";
      }));

    assert.equal(status, "failed");
    assert.ok(error!.startsWith(message), error!);
  }
});

forEachStore("write() rejects for who awaits it, and pipe() with the error of its source", async (context) => {
  const errors: unknown[] = [];
  async function* broken() {
    yield "a";
    await Promise.resolve();
    throw new Error("the model is gone");
  }

  const { status, error } = await perform(context, async (step) => {
    await step.run(
      "bad",
      ({ stream }) => stream<unknown>("tokens").write(() => {}).catch((error) => errors.push(error)),
    )
      .catch(() => {});
    await step.run(
      "pipe",
      ({ stream }) => void stream(tokens).pipe(broken()).catch((error) => errors.push(error)).then(),
    );
    await step.run("awaited", ({ stream }) => stream(tokens).pipe(broken()));
  });

  assert.ok(errors[0] instanceof SerializationError);
  assert.deepEqual([status, error], ["failed", "the model is gone"]);
});

forEachStore("an attempt that has ended writes nothing more", async (context) => {
  let late: Promise<unknown> = Promise.resolve();
  const gate = aGate();
  const { items } = await perform(context, async (step) => {
    await step.run("say", async ({ stream }) => {
      const writer = stream(tokens);
      await writer.write("a");
      late = gate.opened.then(() => writer.write("late")).catch((error) => error);
    });
    await step.run("next", ({ stream }) => {
      gate.open();
      return stream(tokens).write("b");
    });
  });

  const error = await late;
  assert.ok(error instanceof ConflictError);
  assert.equal(error.message, 'The attempt at step "say" has ended');
  assert.deepEqual(items, ["a", "b"]);
});

forEachStore("an attempt that timed out writes nothing into the next one", async ({ store, host }) => {
  const late = Promise.withResolvers<unknown>();
  const job = aJob((step) =>
    step.run("say", async ({ stream, attempt }) => {
      const writer = stream(tokens);
      await writer.write(`${attempt}a`);
      if (attempt === 2) return;
      await pass(host, 200);
      await writer.write(`${attempt}b`).catch(late.resolve);
    }, { timeout: 100, retry: { maxAttempts: 2, delay: 0 } })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);

  await engine.runUntilIdle();

  assert.ok(await late.promise instanceof TimeoutError);
  assert.deepEqual(await itemsOf(engine, id), ["2a"]);
});

forEachStore(
  "pipe() of a stream that has fallen silent ends with the attempt, and cancels it",
  async ({ store, host }) => {
    const cancelled = Promise.withResolvers<unknown>();
    const rejected = Promise.withResolvers<unknown>();
    const job = aJob((step) =>
      step.run("say", async ({ stream }) => {
        const silent = new ReadableStream({ start: (source) => source.enqueue("a"), cancel: cancelled.resolve });
        await stream(tokens).pipe(silent).catch(rejected.resolve);
      })
    );
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger("job", null);
    const done = engine.runUntilIdle();
    await until(host, async () => (await itemsOf(engine, id)).length > 0);

    await engine.cancel(id);
    await done;

    assert.ok(await rejected.promise instanceof RunCancelledError);
    assert.equal(await cancelled.promise, await rejected.promise);
  },
);

forEachStore("write() waits while 256 KiB are not stored", async ({ store, host }) => {
  const item = "x".repeat(100_000);
  const written: number[] = [];
  const job = aJob((step) =>
    step.run("say", async ({ stream }) => {
      for (let at = 0; at < 6; at++) {
        await stream(tokens).write(item);
        written.push(at);
      }
    })
  );
  const gate = aGate();
  const slow = withCalls(store, {
    appendItems: async (writes) => {
      await gate.opened;
      return await store.appendItems(writes);
    },
  });
  await using engine = createEngine({ store: slow, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  const done = engine.runUntilIdle();
  await until(host, () => written.length > 0);
  await pass(host, 500);

  assert.deepEqual(written, [0, 1]);
  gate.open();
  await until(host, () => written.length === 6);
  await done;
  assert.equal((await itemsOf(engine, id)).length, 6);
});

forEachStore("write() that waits for room when the function returns resolves: its item counts", async (context) => {
  let writes: Promise<void>[] = [];
  const { items } = await perform(context, (step) =>
    step.run("say", ({ stream }) => {
      writes = Array.from({ length: 6 }, () => stream(tokens).write("x".repeat(100_000)));
    }));

  const settled = await Promise.allSettled(writes);

  assert.deepEqual(new Set(settled.map(({ status }) => status)), new Set(["fulfilled"]));
  assert.equal(items.length, 6);
});

forEachStore("a stream cannot become larger than maxStreamBytes", async (context) => {
  const { status, error } = await perform(context, async (step) => {
    await step.run("first", ({ stream }) => stream(tokens).write("x".repeat(60)));
    await step.run("second", ({ stream }) => stream(tokens).write("x".repeat(60)));
  }, { maxStreamBytes: 100 });

  assert.deepEqual([status, error], ["failed", 'Stream "tokens" would have more than 100 bytes']);
});

forEachStore("steps write to at most 16 streams at a time", async (context) => {
  const { error } = await perform(context, (step) =>
    step.run("say", async ({ stream }) => {
      for (let at = 0; at < 17; at++) await stream(`s${at}`).write(at);
    }));

  assert.equal(error, 'A run writes to at most 16 streams at a time: it cannot open "s16"');
});

forEachStore("steps one after another write to any number of streams, and to the first ones again", async (context) => {
  const names = Array.from({ length: 20 }, (_, at) => `s${at}`);
  const { output } = await perform(context, async (step) => {
    for (const turn of [1, 2]) {
      for (const name of names) await step.run(`turn ${turn} of ${name}`, ({ stream }) => stream(name).write(turn));
    }
    return await step.run(
      "read",
      ({ readStream }) => Promise.all(names.map((name) => Array.fromAsync(readStream(name)))),
    );
  });

  assert.deepEqual(output, names.map(() => [1, 2]));
});

forEachStore("readStream() of a step yields what completed steps have written", async (context) => {
  const read: unknown[] = [];
  const collect = async (source: AsyncIterable<unknown>) => {
    for await (const item of source) read.push(item);
  };
  const { error } = await perform(context, async (step) => {
    await step.run("write", async ({ stream }) => {
      for (let at = 0; at < 3; at++) await stream(tokens).write("x".repeat(40_000) + at);
    });
    await step.run("fail", async ({ stream }) => {
      await stream(tokens).write("open");
      throw new Error("broken");
    }).catch(() => {});
    await step.run("read", ({ readStream }) => collect(readStream(tokens)));
    await step.run("both", async ({ stream, readStream }) => {
      await stream(tokens).write("more");
      await collect(readStream(tokens));
    });
  });

  assert.deepEqual(read.map((item) => String(item).slice(-2)), ["x0", "x1", "x2"]);
  assert.equal(error, 'Stream "tokens" is being written by step "both", which cannot read it meanwhile');
});

forEachStore(
  "a retry from the failure goes on after the items of the steps that completed",
  async ({ store, host }) => {
    let isBroken = true;
    const job = aJob(async (step) => {
      await step.run("first", ({ stream }) => stream(tokens).write("a"));
      await step.run("second", async ({ stream }) => {
        await stream(tokens).write(isBroken ? "half" : "b");
        if (isBroken) throw new Error("broken");
      });
    });
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger("job", null);
    await engine.runUntilIdle();
    isBroken = false;

    const retry = await engine.retrigger(id, { from: "failure" });
    await engine.runUntilIdle();

    assert.deepEqual(await itemsOf(engine, id), ["a", "half"]);
    assert.deepEqual(await itemsOf(engine, retry.id), ["a", "b"]);
  },
);

forEachStore("items are stored once, whether answers are lost or calls fail", async ({ store, host }) => {
  let calls = 0;
  const unsure = withCalls(store, {
    appendItems: async (writes) => {
      const call = calls++;
      if (call % 3 === 1) throw new StoreError("locked");
      const held = await store.appendItems(writes);
      if (call % 3 === 0) throw new StoreError("the answer is lost", { outcomeUnknown: true });
      return held;
    },
  });
  const job = aJob((step) =>
    step.run("say", async ({ stream }) => {
      for (let at = 0; at < 20; at++) {
        await stream(tokens).write(String(at));
        await pass(host, 100);
      }
    })
  );
  await using engine = createEngine({ store: unsure, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);

  await engine.runUntilIdle();

  assert.ok(calls > 3, `${calls} calls`);
  assert.deepEqual(await itemsOf(engine, id), Array.from({ length: 20 }, (_, at) => String(at)));
});

forEachStore("only the record of a step makes items permanent", async ({ store, host }) => {
  const sent: Chunk[] = [];
  const saving = aGate();
  const observed = withCalls(store, {
    appendItems: (writes) => {
      sent.push(...writes.flatMap(({ chunks }) => chunks));
      return store.appendItems(writes);
    },
    saveStep: async (...parameters) => {
      await saving.opened;
      return await store.saveStep(...parameters);
    },
  });
  const job = aJob((step) =>
    step.run("say", async ({ stream }) => {
      await stream(tokens).write("a");
      await pass(host, 100);
      await stream(tokens).write("b");
    })
  );
  await using engine = createEngine({ store: observed, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  const done = engine.runUntilIdle();
  await until(host, () => sent.length > 0);
  await pass(host, 1_000);

  assert.equal((await store.readStream(id, "tokens", null, 100))!.permanent.items, 0);
  saving.open();
  await done;

  assert.deepEqual(sent.filter(({ isPermanent }) => isPermanent), []);
  assert.deepEqual(await itemsOf(engine, id), ["a", "b"]);
});

forEachStore("a run that streams nothing makes no call for streams, and records no chunks", async ({ store, host }) => {
  const calls: string[] = [];
  const counted = withCalls(store, {
    appendItems: (writes) => {
      calls.push("appendItems");
      return store.appendItems(writes);
    },
    readStream: (...parameters) => {
      calls.push("readStream");
      return store.readStream(...parameters);
    },
    saveStep: (lease, step, reports) => {
      if ("chunks" in step) calls.push("chunks");
      return store.saveStep(lease, step, reports);
    },
  });
  await using engine = createEngine({ store: counted, host, jobs: { job: aJob((step) => step.run("a", () => 1)) } });

  await engine.trigger("job", null);
  await engine.runUntilIdle();

  assert.deepEqual(calls, []);
});

forEachStore("the record waits until it is known where the stream ends", async ({ store, host }) => {
  const gate = aGate();
  const slow = withCalls(store, {
    readStream: async (...parameters) => {
      if (parameters[3] === 0) await gate.opened;
      return await store.readStream(...parameters);
    },
  });
  let returned = false;
  const job = aJob((step) =>
    step.run("say", ({ stream }) => {
      stream(tokens).write("a");
      returned = true;
    })
  );
  await using engine = createEngine({ store: slow, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  const done = engine.runUntilIdle();
  await until(host, () => returned);
  await pass(host, 100);

  assert.deepEqual((await store.getHistory(id))!.steps, []);
  gate.open();
  await done;
  assert.deepEqual(await itemsOf(engine, id), ["a"]);
});

forEachStore("a call stores about 1 MiB of items, however many runs wait", async ({ store, host }) => {
  const sizes: number[] = [];
  const observed = withCalls(store, {
    appendItems: (writes) => {
      sizes.push(writes.flatMap(({ chunks }) => chunks).reduce((sum, { items }) => sum + items.length, 0));
      return store.appendItems(writes);
    },
  });
  const gate = aGate();
  const runs = 20;
  let written = 0;
  const job = aJob((step) =>
    step.run("say", async ({ stream }) => {
      const writer = stream(tokens);
      for (let n = 0; n < 20; n++) writer.write("x".repeat(10_000));
      written += 1;
      await gate.opened;
    })
  );
  await using engine = createEngine({ store: observed, host, jobs: { job }, worker: { concurrency: runs } });
  for (let n = 0; n < runs; n++) await engine.trigger("job", null);
  const done = engine.runUntilIdle();
  await until(host, () => written === runs && sizes.reduce((sum, size) => sum + size, 0) >= runs * 200_000);
  gate.open();
  await done;

  assert.ok(sizes.length >= 4, `${sizes.length} calls`);
  assert.ok(Math.max(...sizes) <= 1_100_000, `${Math.max(...sizes)} characters in one call`);
});

forEachStore("leases are renewed while items wait for the store", async ({ store, host }) => {
  const gate = aGate();
  let calls = 0;
  const slow = withCalls(store, {
    appendItems: async (writes) => {
      calls += 1;
      await gate.opened;
      return await store.appendItems(writes);
    },
  });
  const over = aGate();
  let begun = 0;
  const job = aJob((step) =>
    step.run("say", async ({ stream }) => {
      begun += 1;
      await stream(tokens).write("a");
      await over.opened;
    })
  );
  const worker = { heartbeatInterval: 1_000, staleThreshold: 5_000 };
  await using engine = createEngine({ store: slow, host, jobs: { job }, worker });
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await until(host, () => calls === 1);

  await pass(host, 30_000, 500);
  gate.open();
  await pass(host, 100);
  over.open();
  await until(host, async () => (await engine.getRun(id))!.completedAt !== null);

  assert.deepEqual([(await engine.getRun(id))!.status, begun, calls], ["completed", 1, 1]);
  assert.deepEqual(await itemsOf(engine, id), ["a"]);
});

forEachStore("an item that is larger than a part is read as one, with those around it", async (context) => {
  const large = "x".repeat(200_000);

  const { items } = await perform(context, (step) =>
    step.run("say", async ({ stream }) => {
      for (const item of ["a", large, "b"]) await stream(tokens).write(item);
    }));

  assert.deepEqual(items.map((item) => (item as string).length), [1, 200_000, 1]);
});
