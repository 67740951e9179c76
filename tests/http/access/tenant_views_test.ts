import assert from "node:assert/strict";
import type { TriggerOptions } from "../../../src/engine/triggers/new_run.ts";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import type { Handler } from "../../../src/http/handler.ts";
import { routes } from "../../../src/http/routes.ts";
import { COALESCE_MODES, type Labels, RUN_STATUSES } from "../../../src/model/run.ts";
import { forEachStore, pass, type StoreTest } from "../../support/stores/for_each_store.ts";
import { aRequest, type Service } from "../../support/http/http.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { anotherWorld, aTenantService, order, tenantRuns, UNKNOWN } from "../../support/http/tenants.ts";
import { CAREFUL, type Org } from "../../support/http/tenant_hooks.ts";

/** The same, with names for tenants. */
const TENANTS: HandlerAuth<Org> = { ...CAREFUL, tenant: ({ org }) => org };

/** What they write when they are not careful: what the client asks for wins. */
const CARELESS: HandlerAuth<Org> = {
  ...CAREFUL,
  scopeRuns: ({ org }, filter) => ({ ...filter, labels: { org, ...filter.labels } }),
};

/** What B asks lists for. Some of it only A has. */
const FILTERS = [
  "",
  "label.org=b",
  "label.org=b&label.team=red",
  "label.team=red",
  "label.__proto__=x",
  "label.constructor=x",
  "label.Org=a",
  "jobName=order",
  "jobName=echo",
  "jobName=order&jobName=echo",
  "jobName=unknown",
];

/** The same with what shows A's own label to the hook. */
const FILTERS_FOR_A = [
  "label.org=a",
  "label.org=a&label.org=b",
  "label.org=b&label.org=a",
  "label.org=a&label.team=red",
];

/** What only lists take, and streams do not. */
const PAGES = [
  ...RUN_STATUSES.map((status) => `status=${status}`),
  "status=running&status=waiting",
  "limit=0",
  "limit=1",
  "limit=1&offset=1",
  "limit=1000",
  "offset=1",
  "offset=1000",
  "limit=-1",
  "status=unknown",
];

/** A client of one tenant that writes down every byte that it is told. */
class Diary {
  readonly #handler: Handler;
  readonly #org: string;
  readonly #told: string[] = [];
  readonly #streams: { reader: ReadableStreamDefaultReader<Uint8Array>; path: string; text: string }[] = [];

  constructor({ handler }: Service, org: string) {
    this.#handler = handler;
    this.#org = org;
  }

  /** Asks, and answers the JSON of the answer. */
  // deno-lint-ignore no-explicit-any -- so that a test can look into it without ado
  async ask(method: string, path: string, body?: Record<string, unknown>): Promise<any> {
    const response = await this.#request(method, path, body);
    const text = await response.text();
    this.#told.push(`${method} ${path}: ${response.status} ${JSON.stringify([...response.headers])} ${text}`);
    return response.status === 200 ? JSON.parse(text) : null;
  }

  /** Opens a stream, and reads it until {@linkcode Diary.close}. */
  async open(path: string): Promise<void> {
    const response = await this.#request("GET", path);
    const stream = { reader: response.body!.getReader(), path, text: "" };
    this.#told.push(`GET ${path}: ${response.status} ${JSON.stringify([...response.headers])}`);
    this.#streams.push(stream);
    const decoder = new TextDecoder();
    const take = async () => {
      for (let chunk = await stream.reader.read(); !chunk.done; chunk = await stream.reader.read()) {
        stream.text += decoder.decode(chunk.value, { stream: true });
      }
    };
    take();
  }

  /**
   * Closes all streams, and answers everything that was told, without what is drawn at random.
   *
   * @param isCounted Whether events have numbers that count others' events as well: they are left out.
   */
  async close({ isCounted }: { isCounted: boolean }): Promise<string[]> {
    await Promise.all(this.#streams.map(({ reader }) => reader.cancel()));
    const ids = new Map<string, string>();
    return [...this.#told, ...this.#streams.map(({ path, text }) => `stream ${path}:\n${text}`)].map((text) =>
      (isCounted ? text.replace(/"sequence":\d+/g, '"sequence":n') : text)
        .replace(/[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}/g, (id) => {
          if (!ids.has(id)) ids.set(id, `id-${ids.size}`);
          return ids.get(id)!;
        })
    );
  }

  #request(method: string, path: string, body?: Record<string, unknown>): Promise<Response> {
    const asked = { headers: { "x-org": this.#org }, ...(body === undefined ? {} : { body }) };
    return this.#handler.fetch(aRequest(method, path, asked));
  }
}

interface Lives {
  /** The hooks of the host. */
  auth: HandlerAuth<Org>;
  /** What B asks lists for. */
  filters: readonly string[];
  /** Whether there is a tenant A at all. */
  withA: boolean;
  /** Whether A's runs are executed, cancelled and deleted by another process. */
  isElsewhere: boolean;
}

/** Lets B do whatever can be done, and A as well in between, and answers what B was told. */
async function diaryOfB(world: StoreTest, { auth, filters, withA, isElsewhere }: Lives): Promise<string[]> {
  const { store, host } = world;
  const heard: unknown[] = [];
  await using service = aTenantService({ auth, onError: (error) => heard.push(error) }, world);
  await using elsewhere = createEngine({ store, host, jobs: { order } });
  const a = isElsewhere ? elsewhere : service.engine;
  const diaryOfA = new Diary(service, "a");
  // Where tenants have names, A has keys of its own, and B may use the same ones.
  const ofA = auth.tenant === undefined ? "" : "a/";
  const labelsOfA = JSON.parse('{"org":"a","team":"red","__proto__":"x","constructor":"x"}') as Labels;
  const triggerOfA = (input: object, options: TriggerOptions = {}) =>
    a.trigger("order", { secret: "secret of a", ...input }, { labels: labelsOfA, ...options });
  /** What A does, if there is A. */
  const meanwhile = async (act: () => Promise<unknown>) => {
    if (withA) await act();
    await pass(host, isElsewhere ? 1_200 : 100);
  };
  const b = new Diary(service, "b");
  const list = async () => {
    for (const query of [...filters, ...PAGES, ...filters.map((filter) => `${filter}&limit=0`)]) {
      await b.ask("GET", `/runs?${query}`);
    }
  };
  const triggerOfB = async (input: object, more = {}): Promise<string> =>
    (await b.ask("POST", "/trigger", { jobName: "order", input, labels: { org: "b" }, ...more })).runId;
  const look = async (runId: string) => {
    for (const name of ["run", "steps", "waits", "logs"] as const) {
      await b.ask("GET", `${routes[name].path}?runId=${runId}`);
    }
  };

  await meanwhile(async () => {
    await tenantRuns({ engine: a }, store, "a");
    await triggerOfA({}, { idempotencyKey: `${ofA}once`, concurrencyKey: `${ofA}line` });
    await diaryOfA.open("/runs/subscribe");
  });
  await list();
  const first = await triggerOfB({ secret: "secret of b" });
  await b.open(`/subscribe?runId=${first}`);
  for (const filter of filters) await b.open(`/runs/subscribe?${filter}`);
  await list();
  await service.engine.runUntilIdle();
  await look(first);
  await meanwhile(async () => {
    await triggerOfA({}, { concurrencyKey: "joined" });
    await triggerOfA({ again: true }, { concurrencyKey: "joined", coalesce: "active" });
    await triggerOfA({ isBroken: true });
    await a.runUntilIdle();
    await triggerOfA({ needsReview: true });
    await a.runUntilIdle();
  });
  await list();
  const broken = await triggerOfB({ isBroken: true }, { concurrencyKey: "b", labels: { org: "b", team: "red" } });
  await triggerOfB({}, { concurrencyKey: "b", coalesce: "skip" });
  await meanwhile(async () => {
    const { runs } = await a.getRuns({ status: "waiting" });
    for (const { id } of runs) await diaryOfA.open(`/subscribe?runId=${id}`);
    const [wait] = await a.getWaits(runs[0]!.id);
    await a.signal(wait!.id, { signalId: "a", payload: "secret of a" });
    await a.cancel(runs[1]!.id);
  });
  await service.engine.runUntilIdle();
  await look(broken);
  await b.ask("POST", `/retrigger?runId=${broken}&from=failure`);
  await service.engine.runUntilIdle();
  // A stream that has not read an event of a run when the run is deleted leaves it out.
  await pass(host, 200);
  await b.ask("DELETE", `/run?runId=${broken}`);
  const waiting = await triggerOfB({ needsReview: true });
  await service.engine.runUntilIdle();
  await meanwhile(async () => {
    const { runs: failed } = await a.getRuns({ status: "failed", labels: labelsOfA });
    await a.retrigger(failed[0]!.id);
    await a.deleteRun(failed[0]!.id);
    await a.runUntilIdle();
    const { id } = await triggerOfA({});
    await a.cancel(id);
  });
  const [wait] = await b.ask("GET", `/waits?runId=${waiting}`);
  for (let times = 0; times < 2; times++) {
    const path = `/signal?runId=${waiting}&waitId=${wait.id}`;
    await b.ask("POST", path, { signalId: "b", payload: "secret of b" });
  }
  await service.engine.runUntilIdle();
  await look(waiting);
  if (auth.tenant !== undefined) {
    for (const coalesce of [undefined, ...COALESCE_MODES]) await triggerOfB({}, { concurrencyKey: "line", coalesce });
    for (let times = 0; times < 2; times++) await triggerOfB({}, { idempotencyKey: "once" });
    await service.engine.runUntilIdle();
  }
  // The keys of another job are other keys.
  await triggerOfB({}, { jobName: "echo", idempotencyKey: "once" });
  await b.ask("POST", "/trigger", { jobName: "order", input: {}, labels: { org: "a" }, idempotencyKey: "once" });
  await b.ask("POST", "/trigger", { jobName: "order", input: {} });
  const last = await triggerOfB({}, { idempotencyKey: "once of b" });
  await triggerOfB({}, { idempotencyKey: "once of b" });
  await b.ask("POST", `/cancel?runId=${last}`);
  await b.ask("POST", `/cancel?runId=${last}`);
  await meanwhile(async () => {
    const { runs } = await a.getRuns({ status: ["completed", "cancelled"], labels: { org: "a" } });
    for (const { id } of runs) await a.deleteRun(id);
  });
  await look(UNKNOWN);
  await list();

  await diaryOfA.close({ isCounted: true });
  assert.deepEqual(heard, []);
  assert.equal((await service.engine.getRuns({ labels: { org: "a" } })).total > 0, withA);
  return await b.close({ isCounted: auth.tenant === undefined });
}

/** Shows no more than the first answer that differs. */
function assertSame(withA: readonly string[], withoutA: readonly string[]): void {
  for (const [at, told] of withA.entries()) assert.equal(told, withoutA[at]);
  assert.equal(withA.length, withoutA.length);
}

for (const isElsewhere of [false, true]) {
  const where = isElsewhere ? "in another process" : "in this process";
  const hosts = {
    careful: { auth: CAREFUL, filters: [...FILTERS, ...FILTERS_FOR_A] },
    careless: { auth: CARELESS, filters: FILTERS },
    "careful, tenant-naming": { auth: TENANTS, filters: [...FILTERS, ...FILTERS_FOR_A] },
  };
  for (const [which, { auth, filters }] of Object.entries(hosts)) {
    forEachStore(
      `scopeRuns() of a ${which} host: B is told the same, byte by byte, if A does things ${where}`,
      async (world) => {
        const another = await anotherWorld(world);
        await using _store = another.store;
        const lives = { auth, filters, isElsewhere };

        const withA = await diaryOfB(world, { ...lives, withA: true });
        const withoutA = await diaryOfB(another, { ...lives, withA: false });

        assertSame(withA, withoutA);
        assert.match(withA.join("\n"), /"type":"run:complete".*secret of b/);
      },
    );
  }
}
