import { signedLinks } from "../../../src/links/signed_links.ts";
import { persistLogs } from "../../../src/engine/plugin.ts";
import type { HandlerOptions } from "../../../src/http/handler_options.ts";
import type { Store } from "../../../src/store/store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { FakeHost } from "../fake_host.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { anything, claimOne, holdRun, type StoreTest } from "../stores/for_each_store.ts";
import { aService, type Service } from "./http.ts";
import { openPostgres, POSTGRES_URL } from "../stores/postgres_store.ts";
import { getLogs, getRuns, getWaits } from "../../../src/store/reads.ts";

// What tenants may is the same with links.
const LINKS = signedLinks({ keys: ["a key of links for the tests of tenants"], url: "http://localhost" });

/** The states in which a tenant can have a run for as long as a test likes: statuses, and `held`, which is pending. */
export const STATUSES = ["completed", "failed", "waiting", "cancelled", "held", "running", "pending"] as const;

/** A status in which a tenant can have a run. */
export type TenantStatus = typeof STATUSES[number];

/** A run of a tenant, and its wait; if it has none, the id of no wait. */
export interface TenantRun {
  /** The run. */
  runId: string;
  /** Its wait. */
  waitId: string;
}

/** The id of no run and of no wait. */
export const UNKNOWN = "01234567-89ab-7cde-8f01-23456789abcd";

interface OrderInput {
  needsReview?: boolean;
  isBroken?: boolean;
}

/** A job that leaves something behind wherever a run can: a step, progress, a line of log, a wait, an output. */
export const order = defineJob({
  name: "order",
  input: anything,
  messages: { note: anything },
  async run(step, given) {
    const input = given as OrderInput;
    await step.run("pack", () => input);
    step.progress(1, 2, JSON.stringify(input));
    step.log.info("packed", input);
    if (input.needsReview) await step.wait("review", { metadata: input });
    if (input.isBroken) throw new Error(JSON.stringify(input));
    return input;
  },
});

/**
 * A service of {@linkcode aService} that also knows the job {@linkcode order}, and keeps logs. It does not print which
 * hooks are missing.
 */
export function aTenantService<Context>(
  options: HandlerOptions<Context>,
  context: StoreTest,
  jobs = {},
): Service {
  const { warn } = console;
  console.warn = () => {};
  try {
    const service = aService({ links: LINKS, ...options }, context, { order, ...jobs });
    service.engine.use(persistLogs());
    return service;
  } finally {
    console.warn = warn;
  }
}

/**
 * Makes a run of a tenant. One that is to be pending is executed as soon as the next run is made that is to be something
 * else.
 */
export async function aTenantRun(
  { engine }: Pick<Service, "engine">,
  store: Store,
  org: string,
  status: TenantStatus,
  keys: { idempotencyKey?: string; concurrencyKey?: string } = {},
): Promise<TenantRun> {
  const input = { secret: `secret of ${org}`, needsReview: status === "waiting", isBroken: status === "failed" };
  const { id: runId } = await engine.trigger("order", input, { labels: { org }, ...keys });
  if (status === "cancelled") await engine.cancel(runId);
  else if (status === "running") await claimOne(store, "order");
  else if (status === "held") await holdRun(store, "order", runId);
  else if (status !== "pending") await engine.runUntilIdle();
  const [wait] = await getWaits(store, runId);
  return { runId, waitId: wait?.id ?? UNKNOWN };
}

/** Makes a run of a tenant in each status. */
export async function tenantRuns(
  service: Pick<Service, "engine">,
  store: Store,
  org: string,
): Promise<Record<TenantStatus, TenantRun>> {
  const runs: Partial<Record<TenantStatus, TenantRun>> = {};
  for (const status of STATUSES) runs[status] = await aTenantRun(service, store, org, status);
  return runs as Record<TenantStatus, TenantRun>; // one for each
}

/** Everything that a store keeps, in one text. */
export async function contentsOf(store: Store): Promise<string> {
  const { runs } = await getRuns(store, { limit: 1_000 });
  const all = await Promise.all(runs.map(async ({ id }) => ({
    state: { ...await store.getRunState(id), place: null }, // that moves with other runs
    waits: await getWaits(store, id),
    logs: await getLogs(store, id),
  })));
  return JSON.stringify({ all, leases: await store.getLeases() }, null, 1);
}

/** A world like that of a test, before anything has happened in it. */
export async function anotherWorld({ store }: StoreTest): Promise<StoreTest> {
  const { host, opening } = store instanceof PostgresStore ? openPostgres(POSTGRES_URL!) : openLocal(store);
  const another = await opening;
  await another.migrate();
  return { store: another, host };
}

function openLocal(store: Store): { host: FakeHost; opening: Store | Promise<Store> } {
  const host = new FakeHost();
  return {
    host,
    opening: store instanceof MemoryStore ? new MemoryStore({ host }) : SqliteStore.open(":memory:", { host }),
  };
}

/** A Response in which nothing is as in any of ours. A new one each time: a body can be sent once. */
export function aRefusal(): Response {
  return new Response(new Uint8Array([0, 255, 13, 10, 10, 123, 34]), {
    status: 451,
    statusText: "Not Yours",
    headers: [["content-type", "x/y"], ["x-why", "not yours"], ["set-cookie", "a=1"], ["set-cookie", "b=2"]],
  });
}

/** All that a client sees of a response, read to its end. */
export async function sightOf(response: Response): Promise<unknown> {
  const { status, statusText, headers } = response;
  return { status, statusText, headers: [...headers], bytes: [...new Uint8Array(await response.arrayBuffer())] };
}
