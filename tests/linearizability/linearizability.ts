// deno task linearizability [--operations N] [--store sqlite|memory|postgres] [--seed S] [--only keys|locks|rates|pauses|slots] [--minutes M]
//
// Asks real processes over HTTP, which are killed and suspended meanwhile, and looks whether there is an order in which
// one service that does one thing after another would have told the same. Ends with status 1 if there is none, or after
// so many minutes. With --json FILE it writes what it counted to a file.

import { parseArgs } from "node:util";
import { startServer } from "../stores/postgres/server.ts";
import { writeResults } from "../support/results.ts";
import { examine, type ExamineOptions, SUBJECT_NAMES, type SubjectName } from "./examine.ts";

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
const places: Record<string, () => Pick<ExamineOptions, "database" | "processes" | "isKilled">> = {
  sqlite: () => ({ database: `${folder}/jobs.db`, processes: 2, isKilled: true }),
  memory: () => ({ database: ":memory:", processes: 1, isKilled: false }),
  postgres: () => ({ database: startServer({ fsync: true })!.url, processes: 3, isKilled: true }),
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
  const found = await examine({
    ...place(),
    folder,
    only,
    operations,
    forMs: 60_000 * Number(values.minutes),
    seed,
    onProgress: (done) => {
      if (done - told < operations / 20) return;
      told = done;
      console.error(`${done} operations`);
    },
  });
  const { counts, kills, suspensions, violations } = found;
  console.log(
    `seed ${seed}, ${values.store}: ${kills} kills, ${suspensions} suspensions, ${violations.length} violations`,
  );
  for (const [name, { examined, operations, unanswered, undecided }] of Object.entries(counts)) {
    console.log(`${name}: ${operations} operations on ${examined}, ${unanswered} unanswered, ${undecided} undecided`);
  }
  for (const violation of violations) console.log(`\nseed ${seed}, ${violation}`);
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
