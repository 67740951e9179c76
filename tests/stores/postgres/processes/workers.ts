import { Child } from "../../../processes/child.ts";
import { Ledger } from "../../../processes/ledger.ts";
import type { Chance } from "../../../support/chance.ts";
import type { Tally } from "./tally.ts";
import type { WorkerKind } from "./worker_kinds.ts";

/** What workers are started with. */
export interface WorkersOptions {
  /** The address of the database. */
  url: string;
  schema: string;
  /** Counts what is done to them. */
  tally: Tally;
}

const SUSPENDED_MS = [200, 3_000] as const;

/** The worker processes of a storm, and what they write down. */
export class Workers implements AsyncDisposable {
  /** What they write down. */
  readonly ledger: Ledger;
  readonly #folder: string;
  readonly #begin: (kind: WorkerKind) => Child;
  readonly #tally: Tally;
  readonly #kinds: readonly WorkerKind[];
  readonly #children: Child[] = [];
  readonly #ready = new Set<Child>();
  readonly #suspended = new Map<Child, ReturnType<typeof setTimeout>>();

  private constructor(folder: string, kinds: readonly WorkerKind[], { url, schema, tally }: WorkersOptions) {
    const program = new URL("storm_worker.ts", import.meta.url).href;
    const ledger = `${folder}/ledger`;
    this.ledger = new Ledger(ledger);
    this.#folder = folder;
    this.#tally = tally;
    this.#begin = (kind) => new Child(program, url, schema, ledger, JSON.stringify(kind));
    this.#kinds = kinds;
  }

  /** Starts one of each kind, and resolves when all of them are ready. */
  static async start(kinds: readonly WorkerKind[], options: WorkersOptions): Promise<Workers> {
    const workers = new Workers(await Deno.makeTempDir({ prefix: "holdfast_storm_" }), kinds, options);
    await Promise.all(kinds.map((_, at) => workers.#start(at)));
    return workers;
  }

  /** Kills a worker that was ready to work, if there is one, and starts another one of its kind. */
  async kill(chance: Chance): Promise<void> {
    const ready = this.#children.filter((child) => this.#ready.has(child));
    if (ready.length === 0) return;
    const child = chance.pick(ready);
    const at = this.#children.indexOf(child);
    await this.#end(child);
    this.#start(at);
    this.#tally.add("workers killed");
  }

  async #start(at: number): Promise<void> {
    const child = this.#begin(this.#kinds[at]!);
    this.#children[at] = child;
    await child.hear("ready").then(() => this.#ready.add(child), () => {}); // it may be killed before
  }

  /** Suspends a worker for a while, unless it is suspended. */
  suspend(chance: Chance): void {
    const child = chance.pick(this.#children);
    if (this.#suspended.has(child)) return;
    child.signal("SIGSTOP");
    this.#suspended.set(child, setTimeout(() => this.#resume(child), chance.between(...SUSPENDED_MS)));
    this.#tally.add("workers suspended");
  }

  /** Lets all go on. */
  resumeAll(): void {
    for (const child of [...this.#suspended.keys()]) this.#resume(child);
  }

  #resume(child: Child): void {
    clearTimeout(this.#suspended.get(child));
    this.#suspended.delete(child);
    child.signal("SIGCONT");
  }

  async #end(child: Child): Promise<void> {
    clearTimeout(this.#suspended.get(child));
    this.#suspended.delete(child);
    await child[Symbol.asyncDispose]();
  }

  /** Kills all of them. */
  async stop(): Promise<void> {
    await Promise.all(this.#children.map((child) => this.#end(child)));
  }

  /** Kills all of them, and removes what they have written down. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await Deno.remove(this.#folder, { recursive: true }).catch(() => {});
  }
}
