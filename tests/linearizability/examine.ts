import { Chance } from "../support/chance.ts";
import { Child } from "../processes/child.ts";
import { Facts } from "./facts.ts";
import { KEYS } from "./keys.ts";
import { LOCKS } from "./locks.ts";
import { PAUSES } from "./pauses.ts";
import { RATES } from "./rates.ts";
import { ServiceClient } from "./service_client.ts";
import { SLOTS } from "./slots.ts";
import type { Judgement, Subject } from "./subject.ts";

/** What can be examined. */
export const SUBJECTS = {
  keys: KEYS,
  locks: LOCKS,
  rates: RATES,
  pauses: PAUSES,
  slots: SLOTS,
} satisfies Record<string, Subject>;

/** The name of something that can be examined. */
export type SubjectName = keyof typeof SUBJECTS;

/** All names. */
export const SUBJECT_NAMES = Object.keys(SUBJECTS) as SubjectName[];

/** How a service is examined. */
export interface ExamineOptions {
  /** A file, `:memory:` or the address of a PostgreSQL database. */
  database: string;
  /** A folder of its own, for what the processes have seen. */
  folder: string;
  /** How many processes serve it. */
  processes: number;
  /** Whether processes are killed and suspended meanwhile. */
  isKilled: boolean;
  /** What is examined. Default: everything. */
  only?: SubjectName | undefined;
  /** How many operations are looked at. */
  operations: number;
  /** After how many milliseconds nothing more is begun. Default: never. */
  forMs?: number;
  /** What decides what is asked. The processes are real: no two examinations are the same. */
  seed: number;
  /** Is called when something was examined, with how many operations there were so far. */
  onProgress?: (operations: number) => void;
}

/** What was asked of one kind of thing. */
export interface Counts {
  /** How many of them were examined. */
  examined: number;
  /** How many operations their histories have. */
  operations: number;
  /** How many of them were told nothing. */
  unanswered: number;
  /** How many histories had too many orders to decide. */
  undecided: number;
}

/** What an examination has found. */
export interface Examination {
  counts: Partial<Record<SubjectName, Counts>>;
  /** How often a process was killed, and suspended. */
  kills: number;
  suspensions: number;
  /** The shortest part of each history that is not linearizable, as a text. */
  violations: string[];
}

const SERVICE = new URL("service.ts", import.meta.url).href;
const MOST_VIOLATIONS = 5;

/** Lets clients ask a service for all kinds of things, and looks whether what they were told is linearizable. */
export async function examine(options: ExamineOptions): Promise<Examination> {
  const { database, folder, processes, isKilled, only, operations, forMs = Infinity, seed, onProgress } = options;
  const names = only === undefined ? SUBJECT_NAMES : [only];
  const found: Examination = { counts: {}, kills: 0, suspensions: 0, violations: [] };
  const over = new AbortController();
  const ledger = `${folder}/seen`;
  using facts = new Facts(ledger);
  await using service = new Processes([database, ledger, ...names], processes);
  await service.start();
  const chance = new Chance(seed, "nemesis");
  const nemesis = isKilled ? service.torment(chance, found, over.signal) : Promise.resolve();
  const endAt = Date.now() + forMs;
  let asked = 0;
  let numbers = 0;
  await Promise.all(names.flatMap((name) => {
    const subject: Subject = SUBJECTS[name];
    const counts = found.counts[name] = { examined: 0, operations: 0, unanswered: 0, undecided: 0 };
    return Array.from({ length: subject.atOnce }, async (_, place) => {
      while (asked < operations && Date.now() < endAt && found.violations.length < MOST_VIOLATIONS) {
        const of = `${name}-${++numbers}`;
        const own = new Chance(seed, of);
        const client = new ServiceClient(() => service.address(own));
        const judgement = await subject.examine({ of, place, chance: own, client, facts });
        asked += judgement.operations;
        note(of, judgement, counts, found.violations);
        onProgress?.(asked);
      }
    });
  }));
  over.abort();
  await nemesis;
  return found;
}

function note(of: string, { operations, unanswered, finding, shown }: Judgement, counts: Counts, violations: string[]) {
  counts.examined += 1;
  counts.operations += operations;
  counts.unanswered += unanswered;
  if (finding === "undecided") counts.undecided += 1;
  if (finding === "not linearizable") violations.push(`${of}:\n${shown}`);
}

/** The processes that serve. */
class Processes implements AsyncDisposable {
  readonly #given: readonly string[];
  readonly #size: number;
  readonly #members: { child: Child; port: number }[] = [];

  constructor(given: readonly string[], size: number) {
    this.#given = given;
    this.#size = size;
  }

  async start(): Promise<void> {
    while (this.#members.length < this.#size) await this.#add();
  }

  address(chance: Chance): string {
    return `http://127.0.0.1:${this.#members.length === 0 ? 9 : chance.pick(this.#members).port}`;
  }

  /** Kills and suspends processes until it is over. */
  async torment(chance: Chance, counts: Pick<Examination, "kills" | "suspensions">, over: AbortSignal): Promise<void> {
    while (!over.aborted) {
      await new Promise((resolve) => setTimeout(resolve, chance.between(200, 1_500)));
      const member = chance.pick(this.#members);
      if (chance.happens(0.3)) {
        counts.suspensions += 1;
        member.child.signal("SIGSTOP");
        await new Promise((resolve) => setTimeout(resolve, chance.between(100, 2_000)));
        member.child.signal("SIGCONT");
      } else {
        counts.kills += 1;
        this.#members.splice(this.#members.indexOf(member), 1);
        await Promise.all([member.child[Symbol.asyncDispose](), this.#add()]);
      }
    }
  }

  async #add(): Promise<void> {
    const child = new Child({ file: SERVICE, isDetached: true }, ...this.#given);
    const { port } = await child.hear("serving");
    this.#members.push({ child, port: Number(port) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#members.map(({ child }) => child[Symbol.asyncDispose]()));
  }
}
