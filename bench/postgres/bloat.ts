// deno task bench:bloat [--runs N] [--kept N]
//
// Whether the tables of a PostgresStore stop growing when retention deletes as many runs as end: executes runs (100,000
// unless another number is given) of which 10,000 are kept, on a server with its default settings, autovacuum included.

import { parseArgs } from "node:util";
import { growAndPurge } from "./grow_and_purge.ts";
import { newDatabase } from "./new_database.ts";
import { serverUrl } from "./server_url.ts";

const { values } = parseArgs({
  options: { runs: { type: "string", default: "100000" }, kept: { type: "string", default: "10000" } },
});
await using database = await newDatabase(serverUrl());
console.log(["ended", "left", "tables MB", "indexes MB", "dead rows", "empty claim ms", "runs/s"].join("\t"));
for await (const growth of growAndPurge({ url: database.url, runs: Number(values.runs), kept: Number(values.kept) })) {
  const { ended, left, tableBytes, indexBytes, deadRows, emptyClaimMs, elapsedMs } = growth;
  const sizes = [tableBytes, indexBytes].map((bytes) => (bytes / 1e6).toFixed(1));
  const speed = (ended / elapsedMs * 1_000).toFixed(0);
  console.log([ended, left, ...sizes, deadRows, emptyClaimMs.toFixed(1), speed].join("\t"));
}
