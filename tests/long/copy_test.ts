import { compareHistories } from "../stores/compare_histories.ts";
import { openMoving } from "../stores/copy/open_moving.ts";
import { SCRIPTS } from "../stores/postgres/scripts.ts";
import { startServer } from "../stores/postgres/server.ts";

const server = startServer();
const SEEDS = Array.from({ length: 5 }, (_, index) => index + 3);

for (const [what, options] of Object.entries(SCRIPTS)) {
  Deno.test({
    name: `A copy in PostgreSQL continues as the SqliteStore would have, after ${what}`,
    ignore: server === null,
    fn: () => compareHistories(SEEDS, options, openMoving(server!.url)), // ignored without a server
  });
}
