import { createEngine, defineJob, defineStream, type Engine, SqliteStore, type StreamPart } from "../../../mod.ts";
import { createClient } from "../../../src/client/mod.ts";
import { PostgresStore } from "../../../src/stores/postgres/mod.ts";
import { anything } from "../../processes/anything.ts";
import { Child } from "../../processes/child.ts";
import { inTime } from "../../processes/deadline.ts";
import { Proxy } from "../../stores/postgres/processes/proxy.ts";
import { BRANCHES, findDifference, findMixture, type Said } from "./talk.ts";

/** Where the runs are. */
export type StreamPlaces =
  | { kind: "sqlite"; path: string }
  | { kind: "postgres"; url: string; schema: string; restart: () => Promise<void> };

/** What a torture of streams came to. */
export interface StreamTortureResult {
  /** What was wrong: nothing, if each promise held. */
  problems: string[];
  /** How often what has happened. */
  tally: Record<string, number>;
}

// What has to happen: otherwise the rest proves nothing. Until then it lasts longer, but at most four times as long.
const AT_LEAST = { kills: 1, resets: 5, parts: 100, "runs completed": 3, "connections that failed": 10 };
const WORKERS = 3;
const ACTIVE_RUNS = 8;
const SUSPENDED_MS = 1_500;
const RESTART_EVERY_MS = 7_000;
// A reader that breaks off does so after a part with this probability.
const BREAKS = 0.1;

const talk = defineJob({ name: "talk", input: anything(), run: () => {} });

/**
 * Lets processes execute runs that stream, while they are killed and suspended, steps fail, runs are cancelled and retried,
 * and connections of readers are cut. Each reader must have the items of one attempt at a step after each part, and in the
 * end what a late reader has, and what is recorded.
 */
export async function tortureStreams(
  places: StreamPlaces,
  { ms, check = () => {} }: { ms: number; check?: () => void },
): Promise<StreamTortureResult> {
  await using store = places.kind === "sqlite"
    ? await SqliteStore.open(places.path)
    : await PostgresStore.open(places.url, { schema: places.schema });
  await using engine = createEngine({ store, jobs: { talk }, logger: null });
  await engine.migrate();
  const torture = new StreamTorture(places, engine, ms, check);
  await using _workers = torture;
  return await torture.run();
}

/** One line of what has happened. */
export function describeStreams({ tally }: Pick<StreamTortureResult, "tally">): string {
  return Object.entries(tally).sort().map(([what, count]) => `${count} ${what}`).join(", ");
}

class StreamTorture implements AsyncDisposable {
  readonly #places: StreamPlaces;
  readonly #engine: Engine<{ talk: typeof talk }>;
  readonly #startedAt = performance.now();
  readonly #ms: number;
  readonly #check: () => void;
  readonly #workers: { child: Child; port: number }[] = [];
  // Where it leads is set as soon as a worker serves.
  readonly #proxy = new Proxy({ hostname: "127.0.0.1", port: 1 }, { freezeMs: 500 });
  readonly #problems: string[] = [];
  readonly #tally: Record<string, number> = {};

  constructor(places: StreamPlaces, engine: Engine<{ talk: typeof talk }>, ms: number, check: () => void) {
    this.#places = places;
    this.#engine = engine;
    this.#ms = ms;
    this.#check = check;
  }

  async run(): Promise<StreamTortureResult> {
    for (let n = 0; n < WORKERS; n++) await this.#startWorker(n);
    const harm = [this.#harmWorkers(), this.#cutConnections(), this.#restartServer()];
    const work = Promise.all(Array.from({ length: ACTIVE_RUNS }, () => this.#executeRuns()));
    await Promise.all(harm);
    await inTime(work, "all runs were to end, and their readers");
    const tooFew = this.#tooFew();
    if (tooFew.length > 0) this.#problems.push(`too mild: ${tooFew.join(", ")}`);
    return { problems: this.#problems, tally: this.#tally };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#proxy[Symbol.asyncDispose]();
    for (const { child } of this.#workers) await child[Symbol.asyncDispose]();
  }

  get #isOver(): boolean {
    this.#check();
    const ms = performance.now() - this.#startedAt;
    return ms > 4 * this.#ms || (ms > this.#ms && this.#tooFew().length === 0);
  }

  #tooFew(): string[] {
    return Object.entries(AT_LEAST).filter(([what, least]) => (this.#tally[what] ?? 0) < least).map(([what]) => what);
  }

  #count(what: string, count = 1): void {
    this.#tally[what] = (this.#tally[what] ?? 0) + count;
  }

  async #startWorker(at: number): Promise<void> {
    const { kind, ...place } = this.#places;
    const args = "path" in place ? [kind, place.path, ""] : [kind, place.url, place.schema];
    const child = new Child({ file: new URL("talking_worker.ts", import.meta.url).href }, ...args);
    const port = (await child.hear("serving")).port as number;
    this.#workers[at] = { child, port };
    this.#redirect();
  }

  /** Lets new connections lead to any of the workers. */
  #redirect(): void {
    const serving = this.#workers.filter((worker) => worker !== undefined);
    this.#proxy.server = { hostname: "127.0.0.1", port: pick(serving).port };
  }

  async #harmWorkers(): Promise<void> {
    while (!this.#isOver) {
      await pause(Math.random() * 3_000);
      const at = Math.floor(Math.random() * WORKERS);
      const { child } = this.#workers[at]!;
      if (Math.random() < 0.3) {
        child.signal("SIGSTOP");
        await pause(SUSPENDED_MS);
        child.signal("SIGCONT");
        this.#count("suspensions");
      } else {
        await child[Symbol.asyncDispose](); // which kills it
        this.#count("kills");
        await this.#startWorker(at);
      }
    }
  }

  async #cutConnections(): Promise<void> {
    while (!this.#isOver) {
      await pause(Math.random() * 100);
      this.#redirect();
      const fault = pick(["cut", "half-close", "freeze", "delay"] as const);
      if (this.#proxy.fail(fault, Math.random())) this.#count("connections that failed");
    }
  }

  async #restartServer(): Promise<void> {
    if (this.#places.kind === "sqlite") return;
    while (!this.#isOver) {
      await pause(RESTART_EVERY_MS);
      await this.#places.restart();
      this.#count("restarts of the server");
    }
  }

  async #executeRuns(): Promise<void> {
    while (!this.#isOver) {
      let id: string | null = (await this.#retry(() => this.#engine.trigger("talk", null))).id;
      while (id !== null) id = await this.#followRun(id);
    }
  }

  /** Follows a run to its end. Returns its retry, if there is one. */
  async #followRun(id: string): Promise<string | null> {
    const readers = BRANCHES.flatMap((branch) => [
      this.#read(id, branch, "steady"),
      this.#read(id, branch, "breaking"),
      this.#read(id, branch, "in process"),
    ]);
    if (Math.random() < 0.15) {
      await pause(Math.random() * 2_000);
      await this.#retry(() => this.#engine.cancel(id)).then(() => this.#count("cancels"), () => {});
    }
    const lists = await Promise.all(readers);
    const run = (await this.#retry(() => this.#engine.getRun(id)))!; // nobody deletes it
    const steps = await this.#retry(() => this.#engine.getSteps(id));
    this.#count(`runs ${run.status}`);
    for (const [no, branch] of BRANCHES.entries()) {
      const late = await this.#retry(() => this.#readNow(id, branch));
      const difference = findDifference(late, branch, run, steps);
      if (difference !== null) this.#problems.push(`${branch} of ${id}, ${run.status}: ${difference}`);
      for (const list of lists.slice(3 * no, 3 * no + 3)) {
        if (JSON.stringify(list) === JSON.stringify(late)) continue;
        this.#problems.push(`a reader of ${branch} of ${id} has ${list.length} items, a late one ${late.length}`);
      }
    }
    if (run.status !== "failed" || this.#isOver) return null;
    this.#count("retries from the failure");
    return (await this.#retry(() => this.#engine.retrigger(id, { from: "failure" }))).id;
  }

  /** Reads a stream to its end, however often the reader has to begin anew. */
  async #read(id: string, branch: string, how: "steady" | "breaking" | "in process"): Promise<Said[]> {
    const client = createClient({ url: `http://127.0.0.1:${this.#proxy.port}` });
    const stream = defineStream<Said>(branch);
    const list: Said[] = [];
    for (let after: string | undefined;;) {
      const abortion = new AbortController();
      const parts: AsyncIterable<StreamPart<Said>> = how === "in process"
        ? this.#engine.readStream(id, stream, { after })
        : client.readStream(id, stream, { after, abortSignal: abortion.signal });
      try {
        let breaksOff = false;
        for await (const { from, items, position } of parts) {
          this.#count("parts");
          if (from < list.length) this.#count("resets");
          if (from > list.length) this.#problems.push(`a reader of ${branch} of ${id} has a gap at ${list.length}`);
          list.splice(from, Infinity, ...items);
          const mixture = findMixture(list);
          if (mixture !== null) this.#problems.push(`a reader (${how}) of ${branch} of ${id}: ${mixture}`);
          after = position;
          breaksOff = how === "breaking" && Math.random() < BREAKS;
          if (breaksOff) break;
        }
        if (!breaksOff) return list;
        this.#count("readers that broke off");
      } catch {
        this.#count("readers that failed");
      } finally {
        abortion.abort();
      }
      await pause(Math.random() * 500);
    }
  }

  async #readNow(id: string, branch: string): Promise<Said[]> {
    const list: Said[] = [];
    for await (const { from, items } of this.#engine.readStream(id, defineStream<Said>(branch), { follow: false })) {
      list.splice(from, Infinity, ...items);
    }
    return list;
  }

  /** Calls until it succeeds: a store may be away, or locked by a process that is suspended. */
  async #retry<T>(call: () => Promise<T>): Promise<T> {
    for (let tries = 1;; tries++) {
      try {
        return await call();
      } catch (error) {
        if (tries === 50 || (error as { code?: string }).code === "conflict") throw error;
        await pause(200);
      }
    }
  }
}

function pick<T>(items: readonly T[]): T {
  return items[Math.floor(Math.random() * items.length)]!; // there are some
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
