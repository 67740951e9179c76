// deno run -A examples/tick_by_post.ts
//
// A service whose engine is never started, and a cron of another service that calls it: `POST /tick` executes what is
// due, and says when to call again. The run sleeps between its steps, and nothing of it is in memory meanwhile.

import { createEngine, createHandler, defineJob, SqliteStore } from "@holdfast/jobs";
import { z } from "zod";

const TOKEN = "of the cron, from the environment";

const remind = defineJob({
  name: "remind",
  input: z.object({ who: z.string() }),
  async run(step, { who }) {
    await step.run("mail", () => console.log(`Welcome, ${who}`));
    await step.sleep("a while", "1s");
    return await step.run("remind", () => `Reminded ${who}`);
  },
});

await using store = await SqliteStore.open(":memory:"); // where several instances have no common disk: PostgresStore
const engine = createEngine({ store, jobs: { remind } });
const refuse = (status: number) =>
  Response.json({ error: "This is for the cron alone", code: "forbidden" }, { status });
const { fetch: respond } = createHandler(engine, {
  basePath: "/api/jobs",
  auth: {
    authenticate: (request) => {
      if (request.headers.get("authorization") !== `Bearer ${TOKEN}`) throw refuse(401);
      return "cron";
    },
    onOperate: (_cron, { operation }) => {
      if (operation !== "tick") throw refuse(403);
    },
    // The cron may read and trigger nothing.
    onRunAccess: () => Promise.reject(refuse(403)),
    onTrigger: () => Promise.reject(refuse(403)),
    scopeRuns: () => Promise.reject(refuse(403)),
  },
});
const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, respond);

/** The cron of another service. */
async function tick(token: string): Promise<{ status: number; executed?: number; nextDueAt?: string | null }> {
  const response = await fetch(`http://127.0.0.1:${server.addr.port}/api/jobs/tick?timeout=5000`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
  });
  return { status: response.status, ...await response.json() };
}

console.log("Without the token of the cron:", (await tick("guessed")).status);
const { id } = await engine.jobs.remind.trigger({ who: "Ada" });
for (let dueAt: string | null = new Date().toISOString(); dueAt !== null;) {
  await new Promise((resolve) => setTimeout(resolve, Date.parse(dueAt!) - Date.now()));
  const { executed, nextDueAt = null } = await tick(TOKEN);
  console.log(
    `The tick executed ${executed}; something is due again ${nextDueAt === null ? "never" : `at ${nextDueAt}`}`,
  );
  dueAt = nextDueAt;
}
console.log((await engine.getRun(id))!.output);
await server.shutdown();
