import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import type { Run } from "../../../src/model/run.ts";
import { type Action, toQuery } from "./action.ts";
import { type Command, resolveCommand } from "./command.ts";
import { type Deed, findOrder } from "./find_order.ts";
import { History } from "./history.ts";
import { Model, type ModelEvent } from "./model.ts";
import { isListed, type ModelRun, showRun } from "./model_run.ts";
import { type Naming, TENANTS } from "./tenants.ts";
import { type Answer, type StoreName, World } from "./world.ts";

/** A world and its model, in which things happen one after another and at once. */
export class Play implements AsyncDisposable {
  /** What is tested. */
  readonly world: World;
  /** What was done so far. */
  readonly history = new History();
  /** What it is compared with. */
  model: Model;
  /** The first receipt of each wait, as it was sent. */
  readonly #receipts = new Map<string, string>();
  /** For each of those who watch lists, how many events there had been before it came. */
  readonly #heardFrom: number[] = [];
  /** Of what was done at once nobody knows in which order it has to be told. */
  #isOrdered = true;

  private constructor(world: World, naming: Naming) {
    this.world = world;
    this.model = new Model(world.host.now(), naming);
  }

  /**
   * Plays.
   *
   * @throws {Error} Something went wrong: the message tells what happened before.
   */
  static async run(store: StoreName, naming: Naming, script: (play: Play) => Promise<void>): Promise<void> {
    await using play = new Play(await World.open(store, naming), naming);
    try {
      await script(play);
      assert.deepEqual(play.world.errors, []);
    } catch (error) {
      throw new Error(play.history.describe((error as Error).message), { cause: error });
    }
  }

  /** Ends everything. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.world[Symbol.asyncDispose]();
  }

  /** Does one thing after another; each has to come to what the model says, and to leave the state that it says. */
  async perform(commands: readonly Command[]): Promise<void> {
    for (const command of commands) await this.act(resolveCommand(command, this.model));
  }

  /** Does one thing, which has to come to what the model says, and to leave the state that it says. */
  async act(action: Action): Promise<void> {
    if (action.kind === "listen") this.#heardFrom.push(this.model.events.length);
    const answer = await this.world.perform(action);
    this.history.note(action, answer);
    const expected = this.model.perform(action, answer.body?.runId ?? "", answer.body);
    assert.deepEqual({ status: answer.status, body: answer.body }, expected);
    this.checkReceipt(action, answer);
    await this.compare();
  }

  /**
   * Does several things at once. Some order has to explain what they come to, and the state that they leave.
   *
   * @throws {Error} There is no such order.
   */
  async performAtOnce(commands: readonly Command[]): Promise<void> {
    this.#isOrdered = false;
    const deeds = await this.actAtOnce(commands.map((command) => resolveCommand(command, this.model)));
    const { runs } = await this.world.engine.getRuns({ limit: 1_000 });
    const stored = runs.map(showStored);
    const model = findOrder(this.model, deeds, (model) => isDeepStrictEqual(showAll(model), stored));
    assert.ok(model !== null, `no order explains what was done at once, and left ${JSON.stringify(stored)}`);
    this.model = model;
    // A duplicate may have been asked before the signal that it repeats: the first receipt has to be known by then.
    for (const disposition of ["accepted", "duplicate"]) {
      for (const { action, answer } of deeds) {
        if (answer.body?.disposition === disposition) this.checkReceipt(action, answer);
      }
    }
    await this.compare();
  }

  /** Does several things at once, whatever they come to. */
  async actAtOnce(actions: readonly Action[]): Promise<Deed[]> {
    const answers = await Promise.all(actions.map((action) => this.world.perform(action)));
    const deeds = actions.map((action, at) => ({ action, answer: answers[at]! }));
    for (const { action, answer } of deeds) this.history.note(action, answer, "at once: ");
    return deeds;
  }

  /** Compares everything that is stored with the model. */
  async compare(): Promise<void> {
    await this.#learnWaits();
    const { runs } = await this.world.engine.getRuns({ limit: 1_000 });
    assert.deepEqual(runs.map(showStored), showAll(this.model));
  }

  /** A signal that is sent again has to get the first receipt again, byte by byte. */
  checkReceipt(action: Action, { status, body, text }: Answer): void {
    if (action.kind !== "signal" || status !== 200) return;
    if (body.disposition === "accepted") this.#receipts.set(action.waitId, text);
    const receipt = this.#receipts.get(action.waitId) ?? "";
    if (body.disposition === "duplicate") assert.equal(text, receipt.replace('"accepted"}', '"duplicate"}'));
  }

  /** Looks at everything with the eyes of each tenant, and at what those were told who watch lists. */
  async lookAtAll(): Promise<void> {
    const query = { jobName: [], status: [], labels: [], limit: null, offset: null };
    for (const by of TENANTS) {
      await this.act({ kind: "runs", by, query });
      for (const runId of this.model.runIds.slice(-6)) {
        for (const kind of ["run", "steps", "waits", "logs"] as const) await this.act({ kind, by, runId });
      }
    }
    await this.world.host.settle();
    for (const at of this.world.listeners.keys()) this.#checkListener(at);
  }

  #checkListener(at: number): void {
    const { by, action: { query }, reader } = this.world.listeners[at]!;
    const filter = { jobName: query.jobName, labels: [...query.labels, ["org", by]] as [string, string][] };
    for (const event of reader.events) {
      assert.ok(
        isListed(event, filter),
        `${by} was told of a run of others, or not asked for: ${JSON.stringify(event)}`,
      );
      assert.ok(
        !("input" in event || "skippedInput" in event || "skippedLabels" in event),
        `${event.type} tells inputs`,
      );
    }
    const numbers = reader.events.map(({ sequence }) => sequence);
    assert.ok(numbers.every((number, at) => number > (numbers[at - 1] ?? 0)), `numbers do not rise: ${numbers}`);
    const due = this.model.events.slice(this.#heardFrom[at]).filter((event) => isListed(event, filter));
    const told = (reader.events as ModelEvent[]).filter(({ type }) => TOLD.includes(type));
    const toldByRun = byRun(told, this.#isOrdered);
    const dueByRun = leaveOutGone(byRun(due, this.#isOrdered), toldByRun, this.#isOrdered);
    assert.deepEqual(toldByRun, dueByRun, `to ${by}, who watches ${toQuery(query) || "everything"}`);
  }

  async #learnWaits(): Promise<void> {
    for (const run of this.model.runs) {
      if (run.wait === null || run.wait.id !== null) continue;
      const [wait] = await this.world.engine.getWaits(run.id);
      assert.ok(wait !== undefined, `run "${run.id}" has no wait`);
      this.model.nameWait(run.id, wait.id);
    }
  }
}

/** The events of which the model knows; the others depend on how a run is executed. */
const TOLD = ["run:trigger", "run:coalesced", "run:cancel", "run:retry", "run:delete"];

/** What was told of each run, in its order if there is one. Nothing is promised of the order between runs. */
function byRun(events: readonly ModelEvent[], isOrdered: boolean): Record<string, string[]> {
  const types: Record<string, string[]> = {};
  for (const { runId, type } of events) (types[runId] ??= []).push(type);
  for (const ofRun of isOrdered ? [] : Object.values(types)) ofRun.sort();
  return types;
}

/**
 * What has to be told if a run is deleted before its events are read: of a run that is gone nothing is told any more but
 * that.
 */
function leaveOutGone(
  due: Record<string, string[]>,
  told: Record<string, string[]>,
  isOrdered: boolean,
): Record<string, string[]> {
  return Object.fromEntries(
    Object.entries(due).map(([runId, types]) => {
      if (!types.includes("run:delete")) return [runId, types];
      const before = types.filter((type) => type !== "run:delete");
      const toldBefore = (told[runId] ?? []).filter((type) => type !== "run:delete");
      const left = isOrdered ? before.slice(0, toldBefore.length) : before.filter((type) => toldBefore.includes(type));
      return [runId, isOrdered ? [...left, "run:delete"] : [...left, "run:delete"].sort()];
    }),
  );
}

/** What a store has to keep, newest first. */
function showAll(model: Model): unknown[] {
  return model.runs.map((run) => showModelled(run)).reverse();
}

function showStored(run: Run): unknown {
  const { id, jobName, status, payload, output, error, labels, idempotencyKey, concurrencyKey } = run;
  const { createdAt, startedAt, completedAt, failureKind, retriggerOf, retriggeredAs, completedAs } = run;
  return {
    ...{ id, jobName, status, input: payload, output, labels, createdAt, idempotencyKey, concurrencyKey },
    ...(error === null ? {} : { error }),
    ...(startedAt === null ? {} : { startedAt }),
    ...(completedAt === null ? {} : { completedAt }),
    ...(failureKind === null ? {} : { failureKind }),
    ...(retriggerOf === null ? {} : { retriggerOf }),
    ...(retriggeredAs === null ? {} : { retriggeredAs }),
    ...(completedAs === null ? {} : { completedAs }),
  };
}

function showModelled(run: ModelRun): unknown {
  const { isTerminal: _, isActive: __, isWaiting: ___, ...shown } = showRun(run);
  return { ...shown, idempotencyKey: run.idempotencyKey, concurrencyKey: run.concurrencyKey };
}
