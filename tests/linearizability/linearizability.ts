// deno task linearizability [--operations N] [--store sqlite|memory|postgres] [--seed S] [--only keys|locks|rates|pauses|slots] [--minutes M]
//
// Asks real processes over HTTP, which are killed and suspended meanwhile, and looks whether there is an order in which
// one service that does one thing after another would have told the same. Ends with status 1 if there is none, or after
// so many minutes. With --json FILE it writes what it counted to a file.

import { parseArgs } from "node:util";
import { startServer } from "../stores/postgres/server.ts";
import { writeResults } from "../support/results.ts";
import {
  type Counts,
  type Examination,
  examine,
  type ExamineOptions,
  SUBJECT_NAMES,
  type SubjectName,
} from "./examine.ts";

const { values } = parseArgs({
  options: {
    operations: { type: "string", default: "10000" },
    store: { type: "string", default: "sqlite" },
    seed: { type: "string", default: String(1 + Math.floor(Math.random() * 1_000_000)) },
    only: { type: "string" },
    minutes: { type: "string", default: "Infinity" },
    json: { type: "string" },
  },
});
const folder = await Deno.makeTempDir({ prefix: "holdfast_linear_" });
const places: Record<string, () => Pick<ExamineOptions, "database" | "processes" | "isKilled"> & { length: number }> = {
  sqlite: () => ({ database: `${folder}/jobs.db`, processes: 2, isKilled: true, length: Infinity }),
  // A MemoryStore looks at all of its runs for each claim: a new service after so many operations keeps them few.
  memory: () => ({ database: ":memory:", processes: 1, isKilled: false, length: 50_000 }),
  postgres: () => ({ database: startServer({ fsync: true })!.url, processes: 3, isKilled: true, length: Infinity }),
};
const place = places[values.store];
if (place === undefined) throw new RangeError(`--store is one of ${Object.keys(places).join(", ")}`);
const only = values.only as SubjectName | undefined;
if (only !== undefined && !SUBJECT_NAMES.includes(only)) {
  throw new RangeError(`--only is one of ${SUBJECT_NAMES.join(", ")}`);
}
const operations = Number(values.operations);
const seed = Number(values.seed);
let told = 0;
try {
  const found = await examineInParts(place());
  const { counts, kills, suspensions, violations } = found;
  console.log(
    `seed ${seed}, ${values.store}: ${kills} kills, ${suspensions} suspensions, ${violations.length} violations`,
  );
  for (const [name, { examined, operations, unanswered, undecided }] of Object.entries(counts)) {
    console.log(`${name}: ${operations} operations on ${examined}, ${unanswered} unanswered, ${undecided} undecided`);
  }
  for (const violation of violations) console.log(`\n${violation}`);
  const ofSubjects = Object.entries(counts).flatMap(([name, { operations, unanswered, undecided }]) => [
    [`operations on ${name}`, operations],
    [`of ${name} unanswered`, unanswered],
    [`of ${name} undecided`, undecided],
  ]);
  const operationsOnAll = Object.values(counts).reduce((sum, { operations }) => sum + operations, 0);
  const all = { seed, operations: operationsOnAll, kills, suspensions, ...Object.fromEntries(ofSubjects) };
  await writeResults(values.json, [{ name: values.store, broken: violations.length, counts: all }]);
  if (violations.length > 0 || Object.values(counts).some(({ undecided }) => undecided > 0)) Deno.exitCode = 1;
} finally {
  await Deno.remove(folder, { recursive: true });
}
Deno.exit();

/** Examines services one after the other, each for so many operations. The seed of each is one more than the last. */
async function examineInParts({ length, ...where }: ReturnType<typeof places[string]>): Promise<Examination> {
  const all: Examination = { counts: {}, kills: 0, suspensions: 0, violations: [] };
  const endAt = Date.now() + 60_000 * Number(values.minutes);
  let before = 0;
  for (let part = 0; before < operations && Date.now() < endAt && all.violations.length === 0; part++) {
    const found = await examine({
      ...where,
      folder: await Deno.makeTempDir({ dir: folder }),
      only,
      operations: Math.min(length, operations - before),
      forMs: endAt - Date.now(),
      seed: seed + part,
      onProgress: (done) => tell(before + done),
    });
    all.kills += found.kills;
    all.suspensions += found.suspensions;
    all.violations.push(...found.violations.map((violation) => `seed ${seed + part}, ${violation}`));
    for (const name of Object.keys(found.counts) as SubjectName[]) {
      const counts = all.counts[name] ??= { examined: 0, operations: 0, unanswered: 0, undecided: 0 };
      for (const count of Object.keys(counts) as (keyof Counts)[]) counts[count] += found.counts[name]![count];
    }
    before = Object.values(all.counts).reduce((sum, { operations }) => sum + operations, 0);
  }
  return all;
}

function tell(done: number): void {
  if (done - told < operations / 20) return;
  told = done;
  console.error(`${done} operations`);
}
