import { compareHistories } from "../compare_histories.ts";
import { openSubject, openSubjectWithDeadEntries } from "./open_subject.ts";
import { SCRIPTS } from "./scripts.ts";
import { startServer } from "./server.ts";

const server = startServer();
const SEEDS = [1, 2];

for (const [what, options] of Object.entries(SCRIPTS)) {
  Deno.test({
    name: `MemoryStore and PostgresStore answer the same to ${what}`,
    ignore: server === null,
    fn: () => compareHistories(SEEDS, options, openSubject(server!)), // ignored without a server
  });
  Deno.test({
    name: `MemoryStore and PostgresStore answer the same to ${what}, also if there are dead entries`,
    ignore: server === null,
    fn: () => compareHistories([3], options, openSubjectWithDeadEntries(server!)), // ignored without a server
  });
}
