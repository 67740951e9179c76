import { Child, type Program } from "../processes/child.ts";
import { inTime, until } from "../processes/deadline.ts";
import { isSuspended } from "./is_suspended.ts";
import { Resurrection } from "./resurrection.ts";

/** A worker that serves. */
export interface Member {
  child: Child;
  /** Where it listens. */
  port: number;
  /** Whether it is suspended by a SIGSTOP. */
  isStopped: boolean;
  /** The id of its engine's worker, once it has claimed a run. */
  owner: string | null;
  /** Whether it must live on for now, since it is doing something that takes longer. */
  isSpared: boolean;
  /** Whether it was told to end, or killed. */
  isGoing: boolean;
}

/** What a pool of workers is made of. */
export interface WorkerPoolOptions {
  /** The file that all workers share. */
  database: string;
  /** The file that all workers write to. */
  ledgerPath: string;
  /** How long a lease lasts, in milliseconds. */
  leaseMs: number;
  /** How many workers serve at the same time. */
  size: number;
  /** Is called before a process is suspended. */
  onSuspension: (pid: number) => void;
  /** Is called when a worker has ended, or could not begin, and was not asked to end. */
  onTrouble: (message: string) => void;
}

/** The program of a worker. Its arguments: the database, the ledger, how long a lease lasts in milliseconds. */
export const WORKER: Program = { file: "../torture/worker.ts", isDetached: true };

const SPARES = 2;

/** The worker processes: as many as there should be, and spares that replace those that are killed. */
export class WorkerPool implements AsyncDisposable {
  readonly members: Member[] = [];
  readonly #options: WorkerPoolOptions;
  readonly #alive = new Set<Child>();
  readonly #spares: Child[] = [];
  readonly #expected = new Set<Child>();
  readonly #calls = new Set<Promise<void>>();
  readonly #watches = new Set<Promise<void>>();
  readonly #resurrection = new Resurrection();
  #frozen: Promise<void> | null = null;
  #isRetiring = false;
  #isOver = false;

  /** Begins without workers. */
  constructor(options: WorkerPoolOptions) {
    this.#options = options;
  }

  /** Lets as many workers serve as there should be, and resolves when they do. */
  async start(): Promise<void> {
    await Promise.all(Array.from({ length: this.#options.size }, () => this.#enlist()));
    this.#fillSpares();
  }

  /** Ends a worker by SIGKILL and lets another take its place. */
  kill(member: Member): void {
    this.#remove(member);
    member.child.signal("SIGKILL");
    this.#replace();
  }

  /** Suspends a worker. */
  async suspend(member: Member): Promise<void> {
    await this.#note(member.child.pid);
    member.isStopped = true;
    member.child.signal("SIGSTOP");
  }

  /** Lets a suspended worker go on. */
  resume(member: Member): void {
    member.isStopped = false;
    member.child.signal("SIGCONT");
  }

  /** Ends a worker by SIGTERM, and lets another take its place. Resolves when it has ended. */
  async dismiss(member: Member): Promise<void> {
    this.#remove(member);
    this.#replace();
    const { code, signal } = await member.child.end("SIGTERM");
    if (code !== 0) this.#options.onTrouble(`a worker that was asked to stop ended with ${signal ?? code}`);
  }

  /** Suspends all processes, does something while nothing can be written, and lets them go on. */
  async freeze<T>(work: () => Promise<T>): Promise<T> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#frozen = promise;
    const suspended = [...this.#alive];
    try {
      for (const { pid } of suspended) await this.#note(pid);
      for (const child of suspended) child.signal("SIGSTOP");
      await until(() => suspended.every(({ pid }) => isSuspended(pid)), "all workers were to be suspended");
      return await work();
    } finally {
      for (const child of suspended) child.signal("SIGCONT");
      this.#frozen = null;
      resolve();
    }
  }

  async #note(pid: number): Promise<void> {
    this.#options.onSuspension(pid);
    await this.#resurrection.note(pid);
  }

  /** Resolves when nothing is frozen. */
  async thawed(): Promise<void> {
    while (this.#frozen !== null) await this.#frozen;
  }

  /** Resolves when everybody who was called serves. */
  async settled(): Promise<void> {
    while (this.#calls.size > 0) await Promise.all(this.#calls);
  }

  /** Ends all workers by SIGTERM, and lets nobody take their place. */
  async retire(): Promise<void> {
    this.#isRetiring = true;
    await this.settled();
    await Promise.all([...this.members].map((member) => this.dismiss(member)));
  }

  /** Ends everybody, whatever they are doing. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    for (const member of this.members.splice(0)) member.isGoing = true;
    do {
      const children = [...this.#alive];
      for (const child of children) this.#expected.add(child);
      await Promise.all(children.map((child) => child[Symbol.asyncDispose]()));
      await Promise.all([this.settled(), ...this.#watches]);
    } while (this.#alive.size > 0);
    await this.#resurrection[Symbol.asyncDispose]();
  }

  #remove(member: Member): void {
    member.isGoing = true;
    this.#expected.add(member.child);
    const position = this.members.indexOf(member);
    if (position >= 0) this.members.splice(position, 1);
  }

  #replace(): void {
    if (this.#isRetiring) return;
    this.#call(this.#enlist());
  }

  #fillSpares(): void {
    this.#call((async () => {
      while (!this.#isRetiring && !this.#isOver && this.#spares.length < SPARES) this.#spares.push(await this.#spawn());
    })());
  }

  #call(work: Promise<void>): void {
    const call = work.catch((error) => {
      if (!this.#isOver) this.#options.onTrouble(`a worker could not begin: ${error}`);
    }).finally(() => this.#calls.delete(call));
    this.#calls.add(call);
  }

  async #enlist(): Promise<void> {
    const child = this.#spares.shift() ?? await this.#spawn();
    this.#fillSpares();
    await this.thawed();
    await child.tell("begin");
    const { port } = await child.hear("serving");
    await this.thawed();
    const member = { child, port: Number(port), isStopped: false, owner: null, isSpared: false, isGoing: false };
    this.members.push(member);
    this.#learnOwner(member);
  }

  async #learnOwner(member: Member): Promise<void> {
    const said = await member.child.hear("claimed").catch(() => null); // it may end before
    if (said !== null) member.owner = String(said.owner);
  }

  async #spawn(): Promise<Child> {
    await this.thawed();
    const { database, ledgerPath, leaseMs } = this.#options;
    const child = new Child(WORKER, database, ledgerPath, String(leaseMs));
    this.#alive.add(child);
    const watch = this.#watch(child).finally(() => this.#watches.delete(watch));
    this.#watches.add(watch);
    await child.hear("ready");
    return child;
  }

  async #watch(child: Child): Promise<void> {
    const { code, signal } = await child.ended;
    await inTime(child[Symbol.asyncDispose](), "what is left of a worker was to be tidied up");
    this.#alive.delete(child);
    if (this.#expected.delete(child) || this.#isOver) return;
    const member = this.members.find((member) => member.child === child);
    if (member !== undefined) this.#remove(member);
    this.#options.onTrouble(`a worker that nobody had touched ended with ${signal ?? code}`);
    this.#replace();
  }
}
