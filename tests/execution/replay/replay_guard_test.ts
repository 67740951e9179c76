import assert from "node:assert/strict";
import { z } from "zod";
import type { Job, StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { ChangeDefinition } from "../../../src/model/job/job_changes.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import type { EngineEvent } from "../../../src/model/event.ts";
import { FakeHost } from "../../support/fake_host.ts";
import {
  anything,
  forEachStore,
  forever,
  LEASE_MS,
  pass,
  recordEvents,
  type StoreTest,
} from "../../support/stores/for_each_store.ts";
import { outputOf, signal } from "../../support/pauses.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { getRun, getSteps, getWaits } from "../../../src/store/reads.ts";

function aCheckout(run: (step: StepContext) => unknown, options: ChangeDefinition = {}): Job {
  return defineJob({ name: "checkout", input: anything, ...options, run });
}

/** Works off what is due; returns what was published, and how many seconds had to pass. */
async function execute(
  { store, host }: StoreTest,
  job: Job,
  { build = "after", meanwhile = () => {} }: { build?: string; meanwhile?: (engine: Engine) => unknown } = {},
): Promise<{ events: EngineEvent[]; seconds: number }> {
  await using engine = createEngine({ store, host, jobs: { job }, build });
  const events = recordEvents(engine);
  let isIdle = false;
  const idle = engine.runUntilIdle().then(() => isIdle = true);
  let seconds = 0;
  for (; !isIdle && seconds < 20; seconds++) {
    await host.settle(60);
    if (isIdle) break;
    if (seconds === 0) await meanwhile(engine);
    await pass(host, 1_000);
  }
  await idle;
  return { events, seconds };
}

/** Triggers a run and executes it as far as it goes. */
async function begin(context: StoreTest, run: (step: StepContext) => unknown): Promise<string> {
  const { store, host } = context;
  const job = aCheckout(run);
  await using engine = createEngine({ store, host, jobs: { job }, build: "before" });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  return id;
}

/** Triggers a run, and lets its process die while it executes a step that hangs. */
async function beginAndDie({ store, host }: StoreTest, run: (step: StepContext) => unknown): Promise<string> {
  const job = aCheckout(run);
  const dead = createEngine({ store, host: new FakeHost({ seed: 2 }), jobs: { job }, build: "before" });
  const { id } = await dead.trigger(job, null);
  void dead.runUntilIdle();
  await host.settle(60);
  host.advance(2 * LEASE_MS);
  return id;
}

const nap = (step: StepContext) => step.sleep("nap", 60_000);

forEachStore("a run of unchanged code is not held: parallel branches, races, caught failures", async (context) => {
  const program = async (step: StepContext) => {
    const fast = step.run("fast", () => "fast");
    const slow = step.run("slow", () => "slow").then(() => step.run("slower", () => "slower"));
    const first = await Promise.race([fast, slow]);
    const failed = await step.run("fails", () => Promise.reject(new Error("no"))).catch(() => "caught");
    await Promise.all([slow, nap(step)]);
    return [first, failed];
  };
  const id = await begin(context, program);
  context.host.advance(60_000);

  const { seconds } = await execute(context, aCheckout(program));

  assert.equal(seconds, 0); // there was no delay, either
  assert.deepEqual((await getRun(context.store, id))!.output, ["fast", "caught"]);
});

forEachStore("a branch may await something outside of its steps for less than a second", async (context) => {
  const { host } = context;
  const outside = (ms: number) => new Promise<void>((resolve) => host.schedule(ms, resolve));
  const id = await beginAndDie(context, async (step) => {
    await Promise.all([step.run("left", () => {}), step.run("right", () => {})]);
    await forever();
  });

  await execute(
    context,
    aCheckout(async (step) => {
      const right = outside(900).then(() => step.run("right", () => assert.fail()));
      await step.run("left", () => assert.fail());
      await step.run("new", () => {});
      await right;
    }),
  );

  assert.equal((await getRun(context.store, id))!.status, "completed");
});

forEachStore(
  "a blocked event loop does not count as a second in which the job has asked for nothing",
  async (context) => {
    const { store, host } = context;
    const outside = (ms: number) => new Promise<void>((resolve) => host.schedule(ms, resolve));
    const id = await beginAndDie(context, async (step) => {
      await Promise.all([step.run("left", () => {}), step.run("right", () => {})]);
      await forever();
    });
    const job = aCheckout(async (step) => {
      const right = outside(300).then(() => outside(1)).then(() => step.run("right", () => assert.fail()));
      await step.run("left", () => assert.fail());
      await step.run("new", () => {});
      await right;
    });
    await using engine = createEngine({ store, host, jobs: { job } });

    const idle = engine.runUntilIdle();
    await host.settle(60);
    host.block(1_500); // all timers are late
    await host.settle(60);
    await pass(host, 1_000);
    await idle;

    assert.equal((await getRun(store, id))!.status, "completed");
  },
);

forEachStore("nothing new begins while a recorded name may still be asked for", async (context) => {
  const executed: string[] = [];
  await begin(context, async (step) => {
    await step.run("charge", () => {});
    await nap(step);
  });
  context.host.advance(60_000);

  const { events } = await execute(
    context,
    aCheckout(async (step) => {
      await Promise.all([
        step.run("new", () => void executed.push("new")),
        step.wait("also new"),
        step.sleep("new, too", 1),
        step.prepareWait("prepared"),
      ]);
    }),
  );

  assert.deepEqual(executed, []);
  assert.deepEqual(events.map(({ type }) => type), ["run:leased", "run:start", "run:hold"]);
});

forEachStore("a held run gives its key up, takes signals and can be cancelled", async ({ store, host }) => {
  const job = aCheckout(async (step) => {
    await step.run("charge", () => {});
    await step.wait("ok?");
  });
  await using engine = createEngine({ store, host, jobs: { job }, build: "before" });
  const { id } = await engine.trigger(job, null, { concurrencyKey: "k" });
  await engine.runUntilIdle();
  await signal(engine, id, "ok?");
  await execute({ store, host }, aCheckout((step) => step.run("pay", () => {})));
  const other = await engine.trigger(job, null, { concurrencyKey: "k", coalesce: "skip" });

  await execute({ store, host }, aCheckout((step) => step.run("pay", () => {})));
  const cancelled = await engine.cancel(id);

  assert.equal(other.disposition, "created");
  assert.equal((await engine.getRun(other.id))!.status, "completed");
  assert.equal(cancelled.status, "cancelled");
  assert.equal(cancelled.held, null);
});

forEachStore("a cancel wins against an ending that waits for the replay", async (context) => {
  const id = await begin(context, async (step) => {
    await step.run("charge", () => {});
    await nap(step);
  });
  context.host.advance(60_000);

  await execute(context, aCheckout(() => "early"), { meanwhile: (engine) => engine.cancel(id) });

  assert.equal((await getRun(context.store, id))!.status, "cancelled");
});

forEachStore("a stop does not save an ending that waits for the replay", async (context) => {
  const { store, host } = context;
  const id = await begin(context, async (step) => {
    await step.run("charge", () => {});
    await nap(step);
  });
  host.advance(60_000);
  const job = aCheckout(() => "early");
  const engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  await host.settle(60);

  await engine.stop();

  const run = (await getRun(store, id))!;
  assert.deepEqual([run.status, run.held], ["pending", null]);
});

forEachStore("a run of unchanged code is not held while the engine stops", async ({ store, host }) => {
  const outside = (ms: number) => new Promise<void>((resolve) => void host.schedule(ms, resolve));
  const job = aCheckout(async (step) => {
    const isFirst = step.execution === 1;
    await Promise.all([
      step.run("retried", ({ attempt }) => attempt === 1 ? Promise.reject(new Error("no")) : outside(500), {
        retry: { maxAttempts: 2, delay: 500 },
      }),
      outside(5).then(() => step.run("hangs", () => isFirst ? forever() : {})),
      outside(isFirst ? 0 : 300).then(() => step.run("fetch", () => {})).then(() => step.run("save", () => {})),
      outside(100).then(() => step.run("hangs, too", () => isFirst ? forever() : {})),
    ]);
  });
  const dead = createEngine({ store, host, jobs: { job } });
  const { id } = await dead.trigger(job, null);
  await dead.start();
  await host.settle(60);
  await pass(host, 50);
  await Promise.all([dead.stop({ timeout: 0 }), pass(host, 1_000, 10)]);
  const engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  await host.settle(60);
  await pass(host, 50);

  await Promise.all([engine.stop(), pass(host, 5_000, 10)]);

  const run = (await getRun(store, id))!;
  assert.deepEqual([run.status, run.held], ["pending", null]);
});

forEachStore("a cancelled run whose job throws during the replay gives up its key at once", async (context) => {
  const { store, host } = context;
  const outside = (ms: number) => new Promise<void>((resolve) => void host.schedule(ms, resolve));
  const job = aCheckout(async (step) => {
    const isFirst = step.execution === 1;
    await Promise.all([
      outside(isFirst ? 0 : LEASE_MS / 2).then(() => step.run("charge", () => {})),
      new Promise<void>((resolve) => step.abortSignal.addEventListener("abort", () => resolve())).then(() =>
        outside(50)
      )
        .then(() => Promise.reject(new Error("cancelled"))),
    ]);
  });
  const next = defineJob({ name: "next", input: anything, run: () => {} });
  await using engine = createEngine({ store, host, jobs: { job, next } });
  const dead = createEngine({ store, host, jobs: { job } });
  const { id } = await dead.trigger(job, null, { concurrencyKey: "card" });
  await dead.start();
  await host.settle(60);
  await pass(host, 50);
  await Promise.all([dead.stop({ timeout: 0 }), pass(host, 1_000, 10)]);
  await engine.start();
  await host.settle(60);
  const { id: nextId } = await engine.trigger(next, null, { concurrencyKey: "card" });

  await engine.cancel(id);
  await pass(host, 2_000, 10);

  assert.equal((await getRun(store, nextId))!.status, "completed");
});

forEachStore("finishWithin ends a run while it waits for the replay", async ({ store, host }) => {
  const before = aCheckout(async (step) => {
    await step.run("charge", () => {});
    await nap(step);
  });
  await using engine = createEngine({ store, host, jobs: { before } });
  const { id } = await engine.trigger(before, null, { finishWithin: 60_500 });
  await engine.runUntilIdle();
  host.advance(60_000);

  await execute({ store, host }, aCheckout((step) => step.run("pay", () => {})));

  assert.equal((await engine.getRun(id))!.failureKind, "timeout");
});

forEachStore("onDivergence continue executes what is new, and publishes what differed", async (context) => {
  const id = await begin(context, async (step) => {
    await step.run("charge", () => "old");
    await nap(step);
  });
  context.host.advance(60_000);

  const { events } = await execute(
    context,
    aCheckout((step) => step.run("charge card", () => "new"), { onDivergence: "continue" }),
  );

  assert.equal((await getRun(context.store, id))!.output, "new");
  const diverged = events.find((event) => event.type === "run:diverged");
  assert.deepEqual(diverged?.isNew, [{ kind: "step", name: "charge card" }]);
  assert.deepEqual(diverged?.unasked, [{ kind: "step", name: "charge" }, { kind: "sleep", name: "nap" }]);
});

forEachStore("onDivergence continue publishes what was left when the function ends early", async (context) => {
  await begin(context, async (step) => {
    await step.run("charge", () => {});
    await nap(step);
  });
  context.host.advance(60_000);

  const { events } = await execute(context, aCheckout(() => "early", { onDivergence: "continue" }));

  const diverged = events.find((event) => event.type === "run:diverged");
  assert.deepEqual([diverged?.isNew, diverged?.unasked.length], [[], 2]);
});

forEachStore("upgradeInput() makes the input of a new version, once, and is given what was stored", async (context) => {
  const { store, host } = context;
  const asked: unknown[] = [];
  const first = aCheckout(nap);
  await using engine = createEngine({ store, host, jobs: { first } });
  const { id } = await engine.trigger(first, { order: 1 });
  await engine.runUntilIdle();
  const second = (seen: unknown[]) =>
    defineJob({
      name: "checkout",
      input: anything,
      version: 2,
      continues: [1],
      upgradeInput: (stored, about) => {
        asked.push(stored, about);
        return { orders: [stored] };
      },
      run: async (step, input) => {
        seen.push(input);
        await nap(step);
        await step.sleep("again", 60_000);
      },
    });
  const seen: unknown[] = [];

  for (let times = 0; times < 2; times++) {
    host.advance(60_000);
    await execute(context, second(seen));
  }

  assert.deepEqual(asked, [{ order: 1 }, { payload: { order: 1 }, version: 1 }]);
  assert.deepEqual(seen, [{ orders: [{ order: 1 }] }, { orders: [{ order: 1 }] }]);
  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore(
  "fields that only the new schema has are added at all depths, in lists of the same length, too",
  async (context) => {
    const { store, host } = context;
    const line = z.object({ item: z.string() });
    const before = defineJob({
      name: "checkout",
      input: z.object({ lines: z.array(line), tags: z.array(z.string()) }),
      run: () => {},
    });
    const job = defineJob({
      name: "checkout",
      input: z.object({
        lines: z.array(line.extend({ count: z.number().default(1) })),
        tags: z.array(z.string()).transform((tags) => [...tags, "new"]),
        to: z.object({ country: z.string().default("DE") }).default({ country: "DE" }),
      }),
      run: (_step, input) => input,
    });
    await using engine = createEngine({ store, host, jobs: { before } });
    const { id } = await engine.trigger(before, { lines: [{ item: "a" }, { item: "b" }], tags: ["t"] });

    await execute(context, job);

    assert.deepEqual((await getRun(store, id))!.output, {
      lines: [{ item: "a", count: 1 }, { item: "b", count: 1 }],
      tags: ["t"],
      to: { country: "DE" },
    });
  },
);

forEachStore("onDivergence fail fails the run with the same message", async (context) => {
  const id = await begin(context, async (step) => {
    await step.run("charge", () => "old");
    await nap(step);
  });
  context.host.advance(60_000);

  await execute(context, aCheckout((step) => step.run("charge card", () => {}), { onDivergence: "fail" }));

  const run = (await getRun(context.store, id))!;
  assert.equal(run.status, "failed");
  assert.match(run.error!, /step "charge card" is new, and the job has not asked for .* step "charge", sleep "nap"/);
});

forEachStore("a message names three of the names, and the rename that was probably meant", async (context) => {
  const id = await begin(context, async (step) => {
    for (const name of ["a", "b", "c", "d"]) await step.run(name, () => {});
    await nap(step);
  });
  context.host.advance(60_000);

  await execute(context, aCheckout((step) => step.run("z", () => {})));

  assert.equal(
    (await getRun(context.store, id))!.held!.message,
    'Held: step "z" is new, and the job has not asked for what this run has recorded: step "a", step "b", step "c", ' +
      'and 2 more. If "a" was renamed, say changes: { renamed: { "a": "z" } }; else see added, removed, or what the ' +
      "job decides outside of its steps",
  );
});

forEachStore(
  "patch() answers true in new runs, false in runs that were further, and never otherwise",
  async (context) => {
    const answers: boolean[] = [];
    const old = await begin(context, async (step) => {
      await step.run("charge", () => {});
      await nap(step);
    });
    const patched = aCheckout(async (step) => {
      const isPatched = await step.patch("gift wrap");
      answers.push(isPatched);
      if (isPatched) await step.run("gift wrap", () => {});
      await step.run("charge", () => {});
      await nap(step);
      await step.sleep("again", 60_000);
      return isPatched;
    });

    const made = await begin(context, (step) => patched.run(step, null));
    context.host.advance(60_000);
    for (let times = 0; times < 3; times++) {
      await execute(context, patched);
      context.host.advance(60_000);
    }

    assert.equal((await getRun(context.store, old))!.output, false);
    assert.equal((await getRun(context.store, made))!.output, true);
    assert.deepEqual((await getWaits(context.store, old)).length + (await getSteps(context.store, old)).length, 1);
  },
);

forEachStore("a step that is renamed between two attempts keeps its name and its idempotency key", async (context) => {
  const keys: string[] = [];
  const attempt = ({ idempotencyKey, attempt }: { idempotencyKey: string; attempt: number }) => {
    keys.push(idempotencyKey);
    if (attempt === 1) throw new Error("not yet");
  };
  const retry = { maxAttempts: 2, delay: 60_000 };
  const id = await begin(context, (step) => step.run("charge", attempt, { retry }));
  context.host.advance(60_000);

  await execute(
    context,
    aCheckout((step) => step.run("charge card", attempt, { retry }), {
      changes: { renamed: { charge: "charge card" } },
    }),
  );

  assert.deepEqual((await getSteps(context.store, id)).map(({ name, attempts }) => [name, attempts]), [["charge", 2]]);
  assert.deepEqual(keys, [`${id}/charge`, `${id}/charge`]);
});

forEachStore("a name that was renamed twice is found by each of its former names", async (context) => {
  for (const name of ["charge", "charge card", "pay"]) {
    const id = await begin(context, async (step) => {
      await step.run(name, () => name);
      await nap(step);
    });
    context.host.advance(60_000);

    await execute(
      context,
      aCheckout(async (step) => {
        const charged = await step.run("pay", () => assert.fail());
        await nap(step);
        return charged;
      }, { changes: { renamed: { charge: "charge card", "charge card": "pay" } } }),
    );

    assert.equal((await getRun(context.store, id))!.output, name);
  }
});

forEachStore("a job cannot ask for both names of a renamed step, in either order", async (context) => {
  for (const [first, second] of [["charge", "charge card"], ["charge card", "charge"]] as const) {
    const id = await begin(context, async (step) => {
      await step.run("charge", () => {});
      await nap(step);
    });
    context.host.advance(60_000);

    await execute(
      context,
      aCheckout(async (step) => {
        await step.run(first, () => {});
        await nap(step);
        await step.run(second, () => assert.fail());
      }, { changes: { renamed: { charge: "charge card" } } }),
    );

    const run = (await getRun(context.store, id))!;
    assert.equal(run.error, '"charge" is renamed to "charge card", and the job asks for both');
  }
});

forEachStore("a retry from the failure may go another way after what had failed", async ({ store, host }) => {
  let isBroken = true;
  const executed: string[] = [];
  const job = aCheckout(async (step) => {
    const result = await step.run("risky", () => isBroken ? Promise.reject(new Error("no")) : "fine").catch(() => null);
    if (result === null) {
      await step.run("apologize", () => void executed.push("apologize"));
      throw new Error("failed");
    }
    return await step.run("celebrate", () => void executed.push("celebrate"));
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  isBroken = false;
  const retry = await engine.retrigger(id, { from: "failure" });

  await execute({ store, host }, job);

  await outputOf(engine, retry.id);
  assert.deepEqual(executed, ["apologize", "celebrate"]);
});

forEachStore("a retry from the failure is held if a copied step was renamed", async ({ store, host }) => {
  const job = aCheckout(async (step) => {
    await step.run("charge", () => {});
    await step.run("ship", () => Promise.reject(new Error("no")));
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const retry = await engine.retrigger(id, { from: "failure" });

  await execute(
    { store, host },
    aCheckout(async (step) => {
      await step.run("charge card", () => assert.fail());
      await step.run("ship", () => {});
    }),
  );

  assert.equal((await engine.getRun(retry.id))!.held!.code, "diverged");
});

forEachStore("a retry from the failure is held if a step was renamed beside the one that failed", async (context) => {
  const { store, host } = context;
  const charged = Promise.withResolvers<void>();
  const job = aCheckout((step) =>
    Promise.all([
      step.run("ship", () => charged.promise.then(() => Promise.reject(new Error("no")))),
      step.run("charge", () => {}).then(charged.resolve),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const retry = await engine.retrigger(id, { from: "failure" });

  await execute(
    context,
    aCheckout((step) => Promise.all([step.run("ship", () => {}), step.run("charge card", () => assert.fail())])),
  );

  assert.equal((await engine.getRun(retry.id))!.held!.code, "diverged");
});

forEachStore("what had not ended goes on in a retry before the copies that follow it", async (context) => {
  const { store, host } = context;
  let isBroken = true;
  const job = aCheckout(async (step) => {
    await step.prepareWait("ok?");
    await step.run("pack", () => {});
    if (isBroken) throw new Error("no");
    return "done";
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  isBroken = false;
  const retry = await engine.retrigger(id, { from: "failure" });

  await execute(context, job);

  assert.equal(await outputOf(engine, retry.id), "done");
});

forEachStore("what had not ended goes on in a retry as soon as only copies are left", async (context) => {
  const { store, host } = context;
  const checkout = (name: string, isBroken: boolean, options: ChangeDefinition = {}) =>
    aCheckout((step) => {
      const pack = async () => {
        await step.prepareWait(name);
        await step.run("pack", () => {});
        if (isBroken) throw new Error("no");
      };
      return Promise.all([pack(), step.wait("late")]);
    }, options);
  const job = checkout("ok?", true);
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const retry = await engine.retrigger(id, { from: "failure" });
  await execute(context, checkout("review?", false), { build: "renamed" });
  assert.equal((await engine.getRun(retry.id))!.held!.code, "diverged");

  await execute(context, checkout("review?", false, { changes: { renamed: { "ok?": "review?" } } }), {
    build: "mended",
  });

  const { status, held } = (await engine.getRun(retry.id))!;
  assert.deepEqual([status, held], ["waiting", null]);
});

forEachStore(
  "a step that failed keeps its idempotency key in a retry with a new name for it",
  async ({ store, host }) => {
    const keys: string[] = [];
    const charging = (name: string, options: ChangeDefinition = {}) =>
      aCheckout(
        (step) =>
          step.run(name, ({ idempotencyKey }) => {
            keys.push(idempotencyKey);
            if (keys.length < 3) throw new Error("no");
          }),
        options,
      );
    const before = charging("charge");
    await using old = createEngine({ store, host, jobs: { before } });
    const { id } = await old.trigger(before, null);
    await old.runUntilIdle();
    const after = charging("charge card", { changes: { renamed: { "charge": "charge card" } } });
    await using engine = createEngine({ store, host, jobs: { after } });

    const second = await engine.retrigger(id, { from: "failure" });
    await engine.runUntilIdle();
    const third = await engine.retrigger(second.id, { from: "failure" });
    await engine.runUntilIdle();

    assert.equal((await engine.getRun(third.id))!.status, "completed");
    assert.deepEqual(keys, [keys[0], keys[0], keys[0]]);
  },
);

forEachStore("a name that stands for different functions is warned of, once", async ({ store, host }) => {
  const warnings: string[] = [];
  const logger = { info: () => {}, warn: (message: string) => void warnings.push(message), error: () => {} };
  const job = aCheckout(async (step) => {
    await step.run("fetch", () => "left");
    await step.run("fetch", () => "right");
    for (const page of [1, 2]) await step.run("page", () => page);
  });
  await using engine = createEngine({ store, host, jobs: { job }, logger });
  await engine.trigger(job, null);
  await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(warnings.length, 1);
  assert.match(warnings[0]!, /Job "checkout" uses the name "fetch" for steps with different functions/);
});

forEachStore("a step without a function fails, and its name can be used again", async ({ store, host }) => {
  const job = aCheckout(async (step) => {
    const message = await step.run("charge", undefined as never).catch(({ message }) => message);
    return [message, await step.run("charge", Object.setPrototypeOf(() => "charged", null))];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), ['Step "charge" needs a function, not undefined', "charged"]);
  assert.deepEqual((await engine.getSteps(id)).map(({ name, status }) => [name, status]), [
    ["charge", "failed"],
    ["charge#2", "completed"],
  ]);
});
