import { fileURLToPath } from "node:url";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { pause } from "../pause.ts";
import type { QueueName } from "./queue.ts";
import type { Descriptor, Sample } from "./records.ts";

const ADAPTER = fileURLToPath(new URL("adapter.ts", import.meta.url));
const CONFIG = fileURLToPath(new URL("../deno.json", import.meta.url));
// So long the benchmark waits for the first line, and for the end of a process.
const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 10_000;
const TICK_US = 10_000; // of Linux: 100 a second

interface Replica {
  process: Deno.ChildProcess;
  /** Whether it is to run: then it is a failure if it ends. */
  isWanted: boolean;
  /** Its status; `null` while it runs. */
  ended: Deno.CommandStatus | null;
  /** Resolves when all that it has printed was read. */
  isRead: Promise<void>;
}

/** The processes of one queue, each with a number. */
export class Replicas {
  readonly #system: QueueName;
  readonly #env: Record<string, string>;
  readonly #onSample: (sample: Sample) => void;
  readonly #logPath: string;
  readonly #replicas = new Map<number, Replica>();

  /**
   * @param env What all processes get.
   * @param logPath The file to which their standard error is appended.
   */
  constructor(system: QueueName, env: Record<string, string>, logPath: string, onSample: (sample: Sample) => void) {
    this.#system = system;
    this.#env = env;
    this.#logPath = logPath;
    this.#onSample = onSample;
  }

  /**
   * Starts the process with this number, and waits for its first line.
   *
   * @throws {Error} It ended, or printed nothing within a minute.
   */
  async start(instance: number): Promise<Descriptor> {
    const process = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-check", "--config", CONFIG, ADAPTER, this.#system],
      env: { ...this.#env, BENCH_INSTANCE_ID: String(instance) },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const first = Promise.withResolvers<Descriptor>();
    const isRead = Promise.all([this.#read(process, first.resolve), this.#keepLog(process)]).then(() => {});
    const replica: Replica = { process, isWanted: true, ended: null, isRead };
    this.#replicas.set(instance, replica);
    process.status.then((status) => {
      replica.ended = status;
      first.reject(new Error(`${this.#system} ended before its first line`));
    });
    const timeout = pause(START_TIMEOUT_MS).then(() => first.reject(new Error(`${this.#system} did not start`)));
    void timeout;
    return await first.promise;
  }

  /** Kills a process at once. */
  async kill(instance: number): Promise<void> {
    const replica = this.#replicas.get(instance);
    if (replica === undefined || !replica.isWanted) return;
    replica.isWanted = false;
    replica.process.kill("SIGKILL");
    await replica.process.status;
  }

  /** Whether a process is to run. */
  isWanted(instance: number): boolean {
    return this.#replicas.get(instance)?.isWanted ?? false;
  }

  /** How much CPU time the running processes have used, in microseconds; `null`: this is not Linux. */
  readCpu(): number | null {
    try {
      const running = [...this.#replicas.values()].filter(({ ended }) => ended === null);
      return running.reduce((sum, { process }) => {
        // Behind the name: see proc(5).
        const fields = Deno.readTextFileSync(`/proc/${process.pid}/stat`).replace(/^.*\) /s, "").split(" ");
        return sum + (Number(fields[11]) + Number(fields[12])) * TICK_US;
      }, 0);
    } catch {
      return null;
    }
  }

  /** Says what has ended without being asked to; `null`: nothing. */
  findCrash(): string | null {
    for (const [instance, { isWanted, ended }] of this.#replicas) {
      if (isWanted && ended !== null) return `process ${instance} ended with ${ended.signal ?? ended.code}`;
    }
    return null;
  }

  /**
   * Asks all processes to end.
   *
   * @returns How long that took, in milliseconds; `null`: one of them had to be killed after ten seconds.
   */
  async stop(): Promise<number | null> {
    const before = performance.now();
    const running = [...this.#replicas.values()].filter(({ ended }) => ended === null);
    for (const { process } of running) process.kill("SIGTERM");
    const all = Promise.all(running.map(({ process }) => process.status));
    const isInTime = await Promise.race([all.then(() => true), pause(STOP_TIMEOUT_MS).then(() => false)]);
    for (const { process, ended } of running) if (ended === null) process.kill("SIGKILL");
    const ms = performance.now() - before;
    await Promise.all(running.map(({ isRead }) => isRead));
    return isInTime ? ms : null;
  }

  async #read({ stdout }: Deno.ChildProcess, onDescriptor: (descriptor: Descriptor) => void): Promise<void> {
    // The types of Deno and of Node for the same stream differ.
    const input = Readable.fromWeb(stdout as Parameters<typeof Readable.fromWeb>[0]);
    for await (const line of createInterface({ input })) {
      const record: Descriptor | Sample = JSON.parse(line);
      if (record.kind === "descriptor") onDescriptor(record);
      else this.#onSample(record);
    }
  }

  async #keepLog({ stderr }: Deno.ChildProcess): Promise<void> {
    using file = await Deno.open(this.#logPath, { append: true, create: true });
    for await (const bytes of stderr) await file.write(bytes);
  }
}
