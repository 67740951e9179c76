// deno task linearizability [--operations N] [--store sqlite|memory|postgres] [--seed S]
//
// Asks real processes over HTTP, which are killed and suspended meanwhile, and looks whether there is an order in which
// one service that does one thing after another would have told the same. Ends with status 1 if there is none.

import { parseArgs } from "node:util";
import { startServer } from "../stores/postgres/server.ts";
import { examine, type ExamineOptions } from "./examine.ts";

const { values } = parseArgs({
  options: {
    operations: { type: "string", default: "10000" },
    store: { type: "string", default: "sqlite" },
    seed: { type: "string", default: String(1 + Math.floor(Math.random() * 1_000_000)) },
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
const operations = Number(values.operations);
const seed = Number(values.seed);
let told = 0;
try {
  const found = await examine({
    ...place(),
    operations,
    seed,
    onProgress: (done) => {
      if (done - told < operations / 20) return;
      told = done;
      console.error(`${done} operations`);
    },
  });
  const { violations, ...counts } = found;
  console.log(`seed ${seed}, ${values.store}: ${JSON.stringify(counts)}, ${violations.length} violations`);
  for (const violation of violations) console.log(`\n${violation}`);
  if (violations.length > 0 || found.undecided > 0) Deno.exitCode = 1;
} finally {
  await Deno.remove(folder, { recursive: true });
}
Deno.exit();
