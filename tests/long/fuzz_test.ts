import assert from "node:assert/strict";
import fc from "fast-check";
import { checkBurst } from "../http/fuzz/check_burst.ts";
import { checkProperty } from "../http/fuzz/check_property.ts";
import { aCommand, aLineCommand, aRequestCommand, resolveCommand } from "../http/fuzz/command.ts";
import { found } from "../http/fuzz/found.ts";
import { ALONE_DELAY_MS, LEASE_MS } from "../http/fuzz/model.ts";
import { type Naming, NAMINGS } from "../http/fuzz/tenants.ts";
import { Play } from "../http/fuzz/play.ts";
import { aWildRequest } from "../http/fuzz/wild_request.ts";
import { WildService } from "../http/fuzz/wild_service.ts";
import { STORE_NAMES, type StoreName } from "../http/fuzz/world.ts";

/** How long it may take to execute runs: an engine makes pauses after an error, for example. */
const MAX_WORK_MS = 1_000;
/** How many workers die at most before things are asked for at once. */
const MAX_CRASHES = 15;

interface Property<T> {
  /** What is tried. */
  values: fc.Arbitrary<T>;
  /** How much of it, unless `FUZZ_RUNS` says something else. */
  runs: number;
  /** What is tried first. */
  examples?: readonly T[];
}

/** Registers a test of a property once for each store. */
function forEachStore<T>(
  name: string,
  { values, ...options }: Property<T>,
  holds: (store: StoreName, value: T) => Promise<void>,
): void {
  for (const store of STORE_NAMES) {
    Deno.test(`${store}: ${name}`, async () => {
      await checkProperty(values, (value) => holds(store, value), { ...options, name: `${store}: ${name}` });
    });
  }
}

const aNaming = fc.constantFrom(...NAMINGS);

/** What was found, with and without names for tenants. */
function withNamings<T extends unknown[]>(examples: readonly T[]): [Naming, ...T][] {
  return examples.flatMap((example) => NAMINGS.map((naming): [Naming, ...T] => [naming, ...example]));
}

/** Several of something, as likely many as few. */
function several<T>(item: fc.Arbitrary<T>, minLength: number, maxLength: number): fc.Arbitrary<T[]> {
  return fc.noBias(fc.array(item, { minLength, maxLength, size: "max" }));
}

forEachStore(
  "whatever anybody sends is answered as the contract says, and harms nobody",
  { runs: 200, values: several(aWildRequest, 1, 15) },
  async (store, requests) => {
    await using service = await WildService.open(store);

    for (const request of requests) await service.send(request);

    await service.checkUntouched();
  },
);

forEachStore(
  "whatever two tenants ask for, one after another, comes to what a model says",
  { runs: 70, values: fc.tuple(aNaming, fc.oneof(several(aCommand, 1, 50), several(aLineCommand, 1, 25))) },
  (store, [naming, commands]) =>
    Play.run(store, naming, async (play) => {
      await play.perform(commands);

      await play.lookAtAll();
    }),
);

forEachStore(
  "what two tenants ask for at once comes to what a model says that does it in some order",
  {
    runs: 40,
    values: fc.tuple(aNaming, several(aCommand, 0, 15), several(aRequestCommand({ among: 2 }), 2, 6)),
    examples: withNamings(found.atOnce),
  },
  (store, [naming, commands, atOnce]) =>
    Play.run(store, naming, async (play) => {
      await play.perform(commands);

      await play.performAtOnce(atOnce);

      await play.lookAtAll();
    }),
);

forEachStore(
  "what two tenants ask for at once, while runs are executed, breaks no promise",
  {
    runs: 30,
    values: fc.tuple(aNaming, several(aCommand, 0, MAX_CRASHES), several(aRequestCommand({ among: 3 }), 2, 20)),
    examples: withNamings(found.whileExecuting),
  },
  (store, [naming, commands, atOnce]) =>
    Play.run(store, naming, async (play) => {
      const getRuns = async () => (await play.world.engine.getRuns({ limit: 1_000 })).runs;
      await play.perform(commands);
      const before = await getRuns();
      const actions = atOnce.map((command) => resolveCommand(command, play.model));

      const deeds = await play.world.within(MAX_WORK_MS, play.actAtOnce([{ kind: "work" }, ...actions]));

      checkBurst({ naming, deeds, before, after: await getRuns() });
      // A run that was abandoned several times is claimed some time after that is noticed.
      for (const ms of [LEASE_MS, MAX_CRASHES * ALONE_DELAY_MS]) {
        await play.actAtOnce([{ kind: "pass", ms }]);
        await play.world.within(MAX_WORK_MS, play.actAtOnce([{ kind: "work" }]));
      }
      for (const { status } of await getRuns()) assert.match(status, /^(waiting|completed|failed|cancelled)$/);
    }),
);
