import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { SqliteStore } from "../../../mod.ts";
import { allEnded } from "../all_ended.ts";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { assertNone } from "./assert_none.ts";
import { checkIntegrity } from "./audit.ts";
import { Customers } from "./customers.ts";
import type { Patience } from "./patience.ts";
import { Place } from "./place.ts";
import { Service } from "./service.ts";

/** What is done to the file while it is in use. */
const DEEDS = ["moved away", "moved away and replaced", "deleted"] as const;
type Deed = typeof DEEDS[number];

const DETECTED_WITHIN_MS = 5_000;
const PARTS = ["", "-wal", "-shm"];

/** The file is taken away or replaced under a worker: it notices, refuses everything, and harms neither of the files. */
export const replacedFile: Scenario = {
  name: "a replaced file",
  async run({ isBrief, patience }): Promise<ScenarioResult> {
    const told: string[] = [];
    for (let round = 0; round < (isBrief ? 1 : 10); round++) {
      told.push(...await allEnded(DEEDS.map((deed) => replace(deed, patience))));
    }
    return { outcome: "held", told: told.slice(-DEEDS.length).join("; ") };
  },
};

async function replace(deed: Deed, patience: Patience): Promise<string> {
  await using place = await Place.make();
  await using service = await Service.start(place);
  await using customers = new Customers(service, patience);
  await customers.carryOut(30);
  const moved = `${place.folder}/moved.db`;

  // With its log: SQLite takes a log that is left behind for that of the file that comes after.
  for (const part of PARTS) {
    if (deed === "deleted") await Deno.remove(place.database + part);
    else await Deno.rename(place.database + part, moved + part);
  }
  const acceptedBefore = [...customers.accepted.values()];
  const doneAt = performance.now();
  await using successor = deed === "moved away and replaced" ? await Successor.start(place, patience) : null;
  await patience.until(() => customers.oddities.length > 0, "a call was to be refused");
  const detectedMs = performance.now() - doneAt;
  // From now on: a call that was under way may still be answered as before.
  const { carriedOut } = customers.counts;
  await patience.pause(1_500);
  const facts = await service.facts();
  const answers = [
    await service.post("/trigger", { jobName: "order", input: {} }),
    await service.get("/runs"),
    await service.post("/cancel?runId=none", {}),
  ];
  await customers.leave();
  const { code } = await service.stop();

  assert.ok(detectedMs < DETECTED_WITHIN_MS, `It was noticed after ${Math.round(detectedMs)} ms`);
  assert.deepEqual(answers.map(({ status, body }) => [status, body.code]), Array(3).fill([500, "internal"]));
  assert.equal(customers.counts.carriedOut, carriedOut, "A call was carried out after the first was refused");
  assertNone(customers.oddities.filter((text) => !text.startsWith("500")), "Some answers were not 500");
  const reasons = Object.keys(facts.workerErrors).filter((text) => text.includes("was deleted or replaced"));
  assert.equal(reasons.length, 1, `The worker was to say why: ${JSON.stringify(facts.workerErrors)}`);
  assert.equal(code, 0);
  if (deed === "moved away and replaced") await successor!.check(acceptedBefore);
  else assert.throws(() => Deno.statSync(place.database), Deno.errors.NotFound);
  if (deed !== "deleted") checkMoved(moved, [...customers.accepted.values()], place);
  return `${deed}: noticed after ${Math.round(detectedMs)} ms, ${customers.oddities.length} calls refused`;
}

/** All that was ever accepted is in the file that was moved, and all that jobs were told was recorded. */
function checkMoved(moved: string, accepted: string[], place: Place): void {
  assert.equal(checkIntegrity(moved), "ok");
  using db = new DatabaseSync(moved);
  const runs = db.prepare("SELECT id FROM holdfast_runs").all().map(({ id }) => id);
  assertNone(accepted.filter((id) => !runs.includes(id)), "Accepted orders are not in the file that was moved");
  const outputs = db.prepare("SELECT output FROM holdfast_steps WHERE status = 'completed'").all()
    .map(({ output }) => `${output}`).join("\n");
  const acknowledged = place.ledger.read().filter(([word]) => word === "ack");
  assert.ok(acknowledged.length > 10, `Only ${acknowledged.length} results were acknowledged`);
  const lost = acknowledged.filter(([, , , , receipt]) => !outputs.includes(receipt!));
  assertNone(lost, "Acknowledged results are not in the file that was moved");
}

/** Another service, on the file that is in the place of the old one. */
class Successor implements AsyncDisposable {
  readonly #place: Place;
  readonly #service: Service;
  readonly #customers: Customers;

  private constructor(place: Place, service: Service, customers: Customers) {
    this.#place = place;
    this.#service = service;
    this.#customers = customers;
  }

  /** Puts a new database there, and begins to work on it. */
  static async start(place: Place, patience: Patience): Promise<Successor> {
    const other = `${place.folder}/other.db`;
    await using store = await SqliteStore.open(other);
    await store.migrate();
    await store.close();
    await Deno.rename(other, place.database);
    const service = await Service.start({ ...place, ledgerPath: `${place.folder}/successor.txt` });
    return new Successor(place, service, new Customers(service, patience));
  }

  /** After the old service has ended, everything of its own is there, and nothing of the other's. */
  async check(foreign: string[]): Promise<void> {
    await this.#customers.carryOut(10);
    const accepted = new Set(this.#customers.accepted.values());
    await this.#customers.settle();
    await this.#service.kill();
    assert.equal(checkIntegrity(this.#place.database), "ok");
    using db = new DatabaseSync(this.#place.database);
    const runs = new Set(db.prepare("SELECT id FROM holdfast_runs").all().map(({ id }) => id));
    assert.equal(runs.size, this.#customers.accepted.size);
    assert.ok([...accepted].every((id) => runs.has(id)));
    assert.ok(!foreign.some((id) => runs.has(id)));
  }

  /** Ends its service. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#customers.leave();
    await this.#service[Symbol.asyncDispose]();
  }
}
