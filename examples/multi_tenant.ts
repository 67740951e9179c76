/**
 * Two organizations share one engine, and neither sees anything of the other.
 *
 *     deno run -A examples/multi_tenant.ts          # shows what each of them is answered
 *     deno run -A examples/multi_tenant.ts 8000     # serves them
 */
import {
  createEngine,
  createHandler,
  defineJob,
  MemoryStore,
  notFound,
  type RunFilter,
  shutdownOnSignal,
} from "@holdfast/jobs";
import { z } from "zod";

const publish = defineJob({
  name: "publish",
  input: z.object({ article: z.string() }),
  run: (step) => step.wait("review", { timeout: 60_000 }),
});
await using engine = createEngine({ store: new MemoryStore(), jobs: { publish } });

/** The users, by their tokens. In production they come from a session, a signed token or a table of hashed ones. */
const users = new Map([
  ["token-1", { org: "acme", mayReview: true }],
  ["token-2", { org: "acme", mayReview: false }],
  ["token-3", { org: "globex", mayReview: true }],
]);
type User = { org: string; mayReview: boolean };

const refuse = (status: number, error: string) => Response.json({ error }, { status });
const scope = <Filter extends RunFilter>({ org }: User, filter: Filter) => ({
  ...filter,
  labels: { ...filter.labels, org },
});

const handler = createHandler(engine, {
  allowedHosts: ["localhost", "127.0.0.1", "[::1]"], // in production, the names under which it is served
  auth: {
    authenticate(request): User {
      const token = request.headers.get("authorization")?.replace("Bearer ", "") ?? "";
      const user = users.get(token);
      if (user === undefined) throw refuse(401, "Who is it?");
      return user;
    },
    // Each organization has keys of its own: one that both use does not join their runs, nor make them wait.
    tenant: ({ org }) => org,
    onTrigger({ org }, { labels }) {
      if (labels.org !== org) throw refuse(403, `The label org has to be "${org}"`);
    },
    onRunAccess({ org }, run) {
      if (run.labels.org !== org) throw notFound(); // the same answer as for a run that does not exist
    },
    onSignal({ mayReview }, _run, _wait, { payload }) {
      if (!mayReview) throw refuse(403, "Only reviewers may do this");
      if (typeof payload !== "boolean") throw refuse(400, "Yes or no?");
    },
    scopeRuns: scope,
    scopeRunsSubscribe: scope,
  },
});

const [port] = Deno.args;
if (port !== undefined) {
  await engine.start();
  const server = Deno.serve({ hostname: "127.0.0.1", port: Number(port) }, handler.fetch);
  await shutdownOnSignal(engine, { server });
} else {
  await show();
}

/** Prints what somebody is answered. */
async function ask(token: string, method: string, path: string, body?: unknown) {
  const headers = { authorization: `Bearer ${token}` };
  const init = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
  const response = await handler.fetch(new Request(`http://localhost${path}`, init));
  const answer = await response.json();
  console.log(
    `${token} ${method} ${path.replace(/\?.*/, "")}: ${response.status}`,
    JSON.stringify(answer).slice(0, 90),
  );
  return answer;
}

async function show() {
  const article = { jobName: "publish", input: { article: "On tenants" }, idempotencyKey: "article-1" };
  const { runId } = await ask("token-1", "POST", "/trigger", { ...article, labels: { org: "acme" } });
  await ask("token-3", "POST", "/trigger", { ...article, labels: { org: "globex" } }); // another run
  await engine.runUntilIdle();
  await ask("token-1", "POST", "/trigger", { ...article, labels: { org: "globex" } });
  await ask("nobody", "GET", "/runs");
  await ask("token-2", "GET", "/runs");
  await ask("token-3", "GET", "/runs?label.org=acme");
  await ask("token-3", "POST", `/cancel?runId=${runId}`);
  const [wait] = await ask("token-2", "GET", `/waits?runId=${runId}`);
  const signal = { signalId: "review-1", payload: true };
  await ask("token-2", "POST", `/signal?runId=${runId}&waitId=${wait.id}`, signal);
  await ask("token-1", "POST", `/signal?runId=${runId}&waitId=${wait.id}`, signal);
}
