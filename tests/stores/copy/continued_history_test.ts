import { compareHistories } from "../compare_histories.ts";
import { SCRIPTS } from "../postgres/scripts.ts";
import { startServer } from "../postgres/server.ts";
import { openMoving } from "./open_moving.ts";

const server = startServer();

// `tests/long/copy_test.ts` takes many more.
const SEEDS = [1, 2];

for (const [what, options] of Object.entries(SCRIPTS)) {
  Deno.test({
    name: `A copy in PostgreSQL continues as the SqliteStore would have, after ${what}`,
    ignore: server === null,
    fn: () => compareHistories(SEEDS, options, openMoving(server!.url)), // ignored without a server
  });
}
