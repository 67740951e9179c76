import assert from "node:assert/strict";
import { inTime } from "../../processes/deadline.ts";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { audit } from "./audit.ts";
import { Customers } from "./customers.ts";
import { Place } from "./place.ts";
import { Service } from "./service.ts";

/** Which calls to the system fail, as `strace` is told: `when=3+5` is the third and every fifth after it. */
const ALL_FAIL = "fsync,fdatasync:error=EIO";
const FAULTS = [
  "fsync,fdatasync:error=EIO:when=3+5",
  "pwrite64:error=ENOSPC:when=5+7",
  "pwrite64:error=EIO:when=2+3",
  ALL_FAIL,
];
const FAILURES = 10; // of each kind at least

/** Writes and syncs fail under a running process, which goes on; then it is killed, and another one takes over. */
export const diskErrors: Scenario = {
  name: "errors of the disk",
  async run({ isBrief, patience }): Promise<ScenarioResult> {
    await using place = await Place.make();
    await using services = new AsyncDisposableStack();
    let service = services.use(await Service.start(place));
    await using customers = new Customers(service, patience);
    await customers.carryOut(10);
    let failures = 0;
    let workerErrors = 0;
    const countWorkerErrors = async () => {
      const { workerErrors: errors } = await service.facts();
      workerErrors += Object.values(errors).reduce((sum, n) => sum + n, 0);
      return workerErrors;
    };

    for (let round = 0; round < (isBrief ? 1 : 5); round++) {
      for (const fault of FAULTS) {
        const tracer = await Tracer.attach(service.pid, fault, place);
        if (!(tracer instanceof Tracer)) return { outcome: "skipped", reason: tracer.reason };
        {
          await using _ = tracer;
          await patience.until(() => tracer.countFailures() >= FAILURES, `${fault} was to strike`);
          await patience.pause(isBrief ? 200 : 3_000);
          if (fault === ALL_FAIL) {
            // Ten calls may have failed for one of the two alone.
            const before = await countWorkerErrors();
            await customers.areRefused(1);
            await patience.until(async () => await countWorkerErrors() > before, "the worker was to meet the errors");
          }
        }
        failures += tracer.countFailures();
        await countWorkerErrors();
        await customers.carryOut(10);
        await customers.seeCompleted(10);
      }
      // It dies while writes fail: what it has left is all that the next one has.
      await using tracer = await attachAgain(service.pid, FAULTS[round % FAULTS.length]!, place);
      await patience.until(() => tracer.countFailures() >= FAILURES, "the last fault was to strike");
      customers.service = null;
      await service.kill();
      await tracer[Symbol.asyncDispose]();
      failures += tracer.countFailures();
      customers.service = service = services.use(await Service.start(place));
      await customers.carryOut(10);
    }
    const drainedMs = await customers.settle();
    await service.stop();

    const { runs, acknowledged } = await audit(place.database, place.ledger, customers);
    return {
      outcome: "held",
      told:
        `${FAULTS.length} kinds of errors: ${failures} failed calls to the system, ${customers.counts.refused} calls refused with 503, ` +
        `${workerErrors} times the worker had to try again, ${runs} runs completed, none failed, ` +
        `${acknowledged} step results kept, drained in ${Math.round(drainedMs)} ms`,
    };
  },
};

async function attachAgain(pid: number, fault: string, place: Place): Promise<Tracer> {
  const tracer = await Tracer.attach(pid, fault, place);
  assert.ok(tracer instanceof Tracer);
  return tracer;
}

/** Lets calls of a process to the system fail, until it is disposed of. */
class Tracer implements AsyncDisposable {
  readonly #process: Deno.ChildProcess;
  readonly #log: string;
  readonly #reading: Promise<unknown>;

  private constructor(process: Deno.ChildProcess, log: string, reader: ReadableStreamDefaultReader) {
    this.#process = process;
    this.#log = log;
    this.#reading = readAll(reader); // what cannot be told holds up the process that is traced
  }

  /** Begins with it, or answers why that is not possible here. */
  static async attach(pid: number, fault: string, place: Place): Promise<Tracer | { reason: string }> {
    const log = `${place.folder}/strace-${crypto.randomUUID()}.txt`;
    const call = fault.split(":")[0];
    let process: Deno.ChildProcess;
    try {
      process = new Deno.Command("strace", {
        args: ["-f", "-p", `${pid}`, "-o", log, "-e", `trace=${call}`, "-e", `inject=${fault}`],
        stdin: "null",
        stdout: "null",
        stderr: "piped",
      }).spawn();
    } catch {
      return { reason: "there is no strace" };
    }
    const reader = process.stderr.getReader();
    const first = await inTime(reader.read(), "strace was to attach");
    const told = new TextDecoder().decode(first.value);
    if (/attached/.test(told)) return new Tracer(process, log, reader);
    await readAll(reader);
    await process.status;
    return { reason: `strace cannot trace: ${told.trim().split("\n")[0]}` };
  }

  /** How many calls have failed. */
  countFailures(): number {
    return Deno.readTextFileSync(this.#log).split("(INJECTED)").length - 1;
  }

  /** Ends with it. Harmless if that was done, or if it has ended with what it has traced. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#process.kill("SIGINT");
    } catch {
      // It has ended together with what it has traced.
    }
    await inTime(this.#process.status, "strace was to let go");
    await this.#reading;
  }
}

async function readAll(reader: ReadableStreamDefaultReader): Promise<void> {
  while (!(await reader.read()).done);
}
