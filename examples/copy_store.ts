// deno run -A examples/copy_store.ts FILE URL [--schema NAME] [--relaxed]
//
// Moves all runs of a SQLite file to an empty schema of a PostgreSQL database. Stop all engines on the file first.
// With --relaxed the settings of the server decide what survives a crash.

import { parseArgs } from "node:util";
import { HoldfastError } from "@holdfast/jobs";
import { copySqliteToPostgres } from "@holdfast/jobs/postgres";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { schema: { type: "string" }, relaxed: { type: "boolean" } },
});
const [file, url] = positionals;
if (file === undefined || url === undefined || positionals.length > 2) {
  console.error("Usage: copy_store.ts FILE URL [--schema NAME] [--relaxed]");
  Deno.exit(2);
}
try {
  const { runs, tables, durationMs } = await copySqliteToPostgres(file, url, {
    ...(values.schema === undefined ? {} : { schema: values.schema }),
    durability: values.relaxed ? "relaxed" : "full",
    onProgress: ({ table, rows }) => console.error(`${table}: ${rows}`),
  });
  console.table(tables);
  console.table(runs);
  console.log(
    `Copied and compared in ${(durationMs / 1_000).toFixed(1)} s. Move the file away, so that no engine opens it.`,
  );
} catch (error) {
  if (!(error instanceof HoldfastError)) throw error;
  console.error(error.message);
  Deno.exit(1);
}
