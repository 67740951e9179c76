import { startServer } from "../stores/postgres/server.ts";
import { POSTGRES_BANKS } from "./postgres_banks.ts";
import { Patience } from "./scenarios/patience.ts";

const server = startServer({ fsync: true, isOwn: true });

// The others are those of `deno task torture --store postgres`.
const BRIEF = /restarts|standby/;

for (const { name, run } of POSTGRES_BANKS.filter(({ name }) => BRIEF.test(name))) {
  Deno.test({
    name: `each transfer is made once: ${name}`,
    ignore: server === null,
    fn: async () => {
      await run(server!, { ms: 0, patience: new Patience(new AbortController().signal) });
    },
    sanitizeOps: false, // pools have connections that were terminated
    sanitizeResources: false,
  });
}
