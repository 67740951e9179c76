import { Chance } from "../support/chance.ts";
import { Child } from "../processes/child.ts";
import { check, shrink } from "./checker.ts";
import { KeyClients, type KeyHistory } from "./key_client.ts";
import { KEY_MODEL } from "./key_model.ts";

/** How a service is examined. */
export interface ExamineOptions {
  /** A file, `:memory:` or the address of a PostgreSQL database. */
  database: string;
  /** How many processes serve it. */
  processes: number;
  /** Whether processes are killed and suspended meanwhile. */
  isKilled: boolean;
  /** How many questions are asked. */
  operations: number;
  /** What decides what is asked. The processes are real: no two examinations are the same. */
  seed: number;
  /** Is called when a key was examined, with how many operations there were so far. */
  onProgress?: (operations: number) => void;
}

/** What an examination has found. */
export interface Examination {
  /** How many questions were asked. */
  operations: number;
  /** How many of them were told nothing. */
  unanswered: number;
  /** How often a process was killed, and suspended. */
  kills: number;
  suspensions: number;
  /** How many histories had too many orders to decide. */
  undecided: number;
  /** The shortest part of each history that is not linearizable, as a text. */
  violations: string[];
}

const SERVICE = new URL("service.ts", import.meta.url).href;
const KEYS_AT_ONCE = 12;
const MOST_VIOLATIONS = 5;

/** Lets clients ask a service for all kinds of things, and looks whether what they were told is linearizable. */
export async function examine(options: ExamineOptions): Promise<Examination> {
  const { database, processes, isKilled, operations, seed, onProgress } = options;
  const found: Examination = { operations: 0, unanswered: 0, kills: 0, suspensions: 0, undecided: 0, violations: [] };
  const over = new AbortController();
  await using service = new Processes(database, processes);
  await service.start();
  const chance = new Chance(seed, "nemesis");
  const nemesis = isKilled ? service.torment(chance, found, over.signal) : Promise.resolve();
  let keys = 0;
  await Promise.all(Array.from({ length: KEYS_AT_ONCE }, async () => {
    while (found.operations < operations && found.violations.length < MOST_VIOLATIONS) {
      const key = ++keys;
      const own = new Chance(seed, key);
      const clients = new KeyClients(`key ${key}`, { address: () => service.address(own) }, own);
      await clients.ask(8 + own.int(16), 2 + own.int(3));
      judge(clients.history, found);
      onProgress?.(found.operations);
    }
  }));
  over.abort();
  await nemesis;
  return found;
}

function judge(history: KeyHistory, found: Examination): void {
  found.operations += history.length;
  found.unanswered += history.filter(({ told }) => told === null).length;
  const finding = check(KEY_MODEL, history);
  if (finding === "undecided") found.undecided += 1;
  if (finding === "not linearizable") found.violations.push(describe(shrink(KEY_MODEL, history)));
}

/** A history, one operation a line. What was told nothing, or read in vain, is left out where it says nothing. */
function describe(history: KeyHistory): string {
  return history.toSorted((one, other) => one.from - other.from).filter(({ ask, told }) =>
    told !== null || ask.is !== "read"
  )
    .map(({ ask, told, from, to }) =>
      `${from.toFixed(1)} to ${to.toFixed(1)}: ${JSON.stringify(ask)} -> ${
        told === null ? "nothing" : JSON.stringify(told)
      }`
    ).join("\n");
}

/** The processes that serve. */
class Processes implements AsyncDisposable {
  readonly #database: string;
  readonly #size: number;
  readonly #members: { child: Child; port: number }[] = [];

  constructor(database: string, size: number) {
    this.#database = database;
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
    const child = new Child({ file: SERVICE, isDetached: true }, this.#database);
    const { port } = await child.hear("serving");
    this.#members.push({ child, port: Number(port) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#members.map(({ child }) => child[Symbol.asyncDispose]()));
  }
}
