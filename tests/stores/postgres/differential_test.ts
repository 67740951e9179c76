import { compareHistories } from "../compare_histories.ts";
import type { ScriptOptions } from "../operations.ts";
import { openSubject } from "./open_subject.ts";
import { startServer } from "./server.ts";

const server = startServer();
const SEEDS = [1, 2];

const SCRIPTS: Record<string, ScriptOptions> = {
  "any operations": { flow: false },
  "any operations with flow": { flow: true },
  "any operations with child runs": { flow: false, children: true },
  "any operations with child runs and flow": { flow: true, children: true },
  "any operations with versions, held runs, children and flow": { flow: true, children: true, evolution: true },
};

for (const [what, options] of Object.entries(SCRIPTS)) {
  Deno.test({
    name: `MemoryStore and PostgresStore answer the same to ${what}`,
    ignore: server === null,
    fn: () => compareHistories(SEEDS, options, openSubject(server!)), // ignored without a server
  });
}
