import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { Customers } from "./customers.ts";
import { Place } from "./place.ts";
import { Service } from "./service.ts";

const PAGE_BYTES = 4_096;
const NOT_A_DATABASE = /file is not a database/;
const MALFORMED = /malformed/;

/** A way in which a file is not what it should be. */
interface Damage {
  name: string;
  /** Changes the bytes of a sound file. */
  harm(bytes: Uint8Array<ArrayBuffer>, database: string): Uint8Array<ArrayBuffer>;
  /** What has to be said of it. */
  told: RegExp;
}

const DAMAGES: Damage[] = [
  { name: "an overwritten header", harm: (bytes) => overwrite(bytes, 0, 100), told: NOT_A_DATABASE },
  {
    name: "a file that is no database",
    harm: () => new TextEncoder().encode("It was a dark and stormy night. ".repeat(500)),
    told: NOT_A_DATABASE,
  },
  {
    name: "a damaged page",
    harm: (bytes, database) => overwrite(bytes, PAGE_BYTES * (rootPage(database) - 1), PAGE_BYTES),
    told: MALFORMED,
  },
  { name: "a file cut in half", harm: (bytes) => bytes.slice(0, bytes.length / 2), told: MALFORMED },
  {
    name: "tables of a newer version",
    harm: (_bytes, database) => {
      using db = new DatabaseSync(database);
      db.exec("UPDATE holdfast_schema SET version = 999; PRAGMA wal_checkpoint(TRUNCATE)");
      return Deno.readFileSync(database);
    },
    told: /tables of version 999/,
  },
];

/** Somebody has damaged the file: a process says so when it starts or is first asked, and leaves the file as it is. */
export const damagedFile: Scenario = {
  name: "a damaged file",
  async run({ patience }): Promise<ScenarioResult> {
    await using place = await Place.make();
    {
      await using service = await Service.start(place);
      await using customers = new Customers(service, patience);
      await customers.carryOut(20);
      await customers.settle();
      await service.stop();
    }
    const sound = await Deno.readFile(place.database);
    const told: string[] = [];

    for (const damage of DAMAGES) {
      patience.check();
      await Deno.writeFile(place.database, sound);
      const harmed = damage.harm(sound.slice(), place.database);
      await Deno.writeFile(place.database, harmed);
      told.push(`${damage.name}: ${await use(place, damage, harmed)}`);
      await removeAll(place.database);
    }
    return { outcome: "held", told: told.join("; ") };
  },
};

async function use(place: Place, { name, told }: Damage, harmed: Uint8Array): Promise<string> {
  await using service = await startOrNull(place, told);
  if (service !== null) {
    const answers = [
      await service.get("/runs"),
      await service.post("/trigger", { jobName: "greet", input: {} }),
    ];
    const { hiddenErrors } = await service.facts();
    assert.ok(answers.some(({ status }) => status === 500), `Nobody was told of ${name}: ${JSON.stringify(answers)}`);
    assert.ok(Object.keys(hiddenErrors).some((text) => told.test(text)), JSON.stringify(hiddenErrors));
    assert.equal((await service.stop()).code, 0);
  }
  const left = await Deno.readFile(place.database);
  // A service that has come to serve has written to other pages, as it should.
  if (service === null) assert.ok(isEqual(left, harmed), `The file was written to: ${name}`);
  else assert.ok(isEqual(harmedPage(left), harmedPage(harmed)), `The harmed page was written to: ${name}`);
  return service === null ? "refused at the start" : "refused when it was used";
}

/** A service, or `null` if it has refused to start, as it may. */
async function startOrNull(place: Place, told: RegExp): Promise<Service | null> {
  const started = await Service.tryToStart(place);
  if (started instanceof Service) return started;
  assert.match(started.told, told);
  assert.deepEqual([started.code, started.exitCode], ["internal", 1], started.told);
  return null;
}

function rootPage(database: string): number {
  using db = new DatabaseSync(database);
  return Number(db.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'holdfast_runs'").get()!.rootpage);
}

function overwrite(bytes: Uint8Array<ArrayBuffer>, from: number, length: number): Uint8Array<ArrayBuffer> {
  return bytes.fill(0xa5, from, from + length);
}

/** Where the overwritten bytes are; all of it if there are none. */
function harmedPage(bytes: Uint8Array): Uint8Array {
  const from = bytes.findIndex((byte, position) => byte === 0xa5 && bytes[position + PAGE_BYTES - 1] === 0xa5);
  return from < 0 ? bytes : bytes.subarray(from, from + PAGE_BYTES);
}

function isEqual(some: Uint8Array, others: Uint8Array): boolean {
  return some.length === others.length && some.every((byte, position) => byte === others[position]);
}

async function removeAll(database: string): Promise<void> {
  for (const part of ["", "-wal", "-shm"]) await Deno.remove(database + part).catch(() => {});
}
