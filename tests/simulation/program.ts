import type { Chance } from "../support/chance.ts";
import type { Job, StepContext } from "../../src/model/job.ts";
import type { ChildOutcome, InvokeOptions, StepTools } from "../../src/model/job/step_calls.ts";
import type { ReceivedMessage } from "../../src/model/message.ts";
import type { Json } from "../../src/values/json.ts";
import type { ReceiveOptions } from "../../src/model/job/job_messages.ts";
import type { WaitResult } from "../../src/model/wait.ts";

/** What a simulated job does: its input, so that each run is another program, and the same in each execution. */
export type Program = Action[];

/** One action of a program. Those with a name have one of their own, except in a `repeat`. */
export type Action =
  | StepAction
  | CallAction
  | { do: "patch"; name: string; body: Program }
  | { do: "sleep"; name: string; ms: number }
  | { do: "wait"; name: string; timeout: number | null }
  | {
    do: "receive";
    name: string;
    names: readonly string[];
    timeout: number | null;
    max: number | null;
    close: "timeout" | "always" | null;
  }
  | { do: "prepare"; name: string; timeout: number | null; meanwhile: Program }
  | { do: "all" | "race"; branches: Program[] }
  | { do: "repeat"; times: number; body: Program }
  | { do: "catch"; body: Program }
  | { do: "progress"; current: number }
  | { do: "idle"; turns: number }
  | { do: "throw" }
  | { do: "crash"; times: number };

/** A step: what its function does, and how often. */
export interface StepAction {
  do: "step";
  name: string;
  /** How long an attempt takes. */
  ms: number;
  /** How many attempts throw. */
  failures: number;
  /** How many are made at most. */
  attempts: number;
  delay: number;
  timeout: number | null;
  /** Whether its function ends when its `abortSignal` fires. */
  heeds: boolean;
}

/** What starts other runs: a child that is waited for, several of them, or a run that goes on by itself. */
export interface CallAction {
  do: "invoke" | "invokeAll" | "trigger";
  name: string;
  jobName: string;
  /** One, but for `invokeAll`. */
  items: ChildItem[];
}

/** A run that a program starts. */
export interface ChildItem {
  program: Program;
  options: InvokeOptions;
}

/** How a run ended that a program has started. */
export type CallResult = { outcomes: ChildOutcome[] } | { output: unknown } | { error: Error };

/** What the world wants to know of a body: an execution of a program. */
export interface BodyWitness {
  /** The function of a step is called, and does what this does. */
  attempts(action: StepAction, tools: StepTools): Promise<string>;
  /** A step was answered, with its value or the message of its failure. */
  stepped(name: string, answer: { value: string } | { failure: string }): void;
  /** Something to report that nothing else reports. */
  remark(): string;
  /** The program is about to sleep. */
  sleeps(name: string, ms: number): void;
  /** The program does something outside of steps, for some turns. */
  idles(turns: number): Promise<void>;
  /** The program kills its process, unless it has done so often enough. */
  crashes(times: number): Promise<void>;
  /** From now on, several branches of the program may run side by side. */
  branches(): void;
  /** The program is about to wait, or to prepare to. */
  waits(name: string, timeout: number | null): void;
  /** It has slept. */
  slept(name: string): void;
  /** A wait is over: the one of this id, or the next of this name. */
  waited(wait: { id: string } | { name: string }, result: WaitResult): void;
  /** The program is about to receive messages. */
  receives(name: string, timeout: number | null): void;
  /** It has received some. */
  received(name: string, messages: ReceivedMessage | ReceivedMessage[] | null): void;
  /** The job of a run that the program is to start. */
  jobOf(jobName: string): Job;
  /** The program is about to start other runs. */
  calls(action: CallAction): void;
  /** What it started has ended, or was triggered. */
  called(action: CallAction, result: CallResult): void;
  /** The program is about to ask for a step, or for other runs. */
  asks(kind: "step" | "trigger" | "children", name: string): void;
  /** A patch was answered. */
  patched(name: string, isNew: boolean): void;
  /** Something was delivered to the program. */
  saw(what: string): void;
}

/** Makes up a program. */
export function makeProgram(chance: Chance): Program {
  let names = 0;
  const name = () => `n${names++}`;
  const timeout = () => chance.happens(0.6) ? Math.floor(chance.between(20, 1_200)) : null;
  const step = (): Action => {
    const failures = chance.happens(0.25) ? 1 + chance.int(3) : 0;
    return {
      do: "step",
      name: name(),
      ms: chance.happens(0.3) ? 0 : Math.floor(chance.between(0, 150)),
      failures,
      attempts: 1 + chance.int(4),
      // Some park the run, others are waited for in memory.
      delay: chance.pick([0, 10, 100, 1_050, 1_200]),
      timeout: chance.happens(0.15) ? 100 : null,
      heeds: chance.happens(0.5),
    };
  };
  const branches = (depth: number) =>
    Array.from({ length: 2 + chance.int(2) }, () => program(depth + 1, 1 + chance.int(2)));
  const action = (depth: number): Action => {
    const simple: [number, () => Action][] = [
      [8, step],
      [2, () => ({ do: "sleep", name: name(), ms: Math.floor(chance.between(-20, 600)) })],
      [3, () => ({ do: "wait", name: name(), timeout: timeout() })],
      [1, () => ({ do: "progress", current: chance.int(100) })],
      [1, () => ({ do: "idle", turns: chance.int(8) })],
      [0.3, () => ({ do: "throw" })],
    ];
    if (depth >= 2) return chance.weighted(simple)();
    return chance.weighted<() => Action>([
      ...simple,
      [2.5, () => ({ do: "all", branches: branches(depth) })],
      [1.5, () => ({ do: "race", branches: branches(depth) })],
      [1, () => ({ do: "repeat", times: 2 + chance.int(2), body: [action(2)] })],
      [1, () => ({ do: "catch", body: program(depth + 1, 1 + chance.int(2)) })],
      [1, () => ({ do: "prepare", name: name(), timeout: timeout(), meanwhile: program(depth + 1, 1) })],
    ])();
  };
  const program = (depth: number, length: number): Program => Array.from({ length }, () => action(depth));
  return program(0, 1 + chance.int(4));
}

/** The names of the jobs of which a program starts runs. */
export function jobNamesOf(program: Program): string[] {
  return program.flatMap((action): string[] => {
    switch (action.do) {
      case "invoke":
      case "invokeAll":
      case "trigger":
        return [action.jobName];
      case "all":
      case "race":
        return action.branches.flatMap(jobNamesOf);
      case "repeat":
      case "catch":
        return jobNamesOf(action.body);
      case "prepare":
        return jobNamesOf(action.meanwhile);
      default:
        return [];
    }
  });
}

/** Performs a program. */
export async function perform(program: Program, step: StepContext, witness: BodyWitness): Promise<void> {
  for (const action of program) await act(action, step, witness);
}

async function act(action: Action, step: StepContext, witness: BodyWitness): Promise<void> {
  switch (action.do) {
    case "step":
      return await runStep(action, step, witness);
    case "sleep":
      witness.sleeps(action.name, action.ms);
      await step.sleep(action.name, action.ms);
      witness.slept(action.name);
      return witness.saw(`slept ${action.name}`);
    case "wait": {
      witness.waits(action.name, action.timeout);
      const result = await step.wait(action.name, options(action));
      witness.waited({ name: action.name }, result);
      return witness.saw(`wait ${action.name} ${JSON.stringify(result)}`);
    }
    case "receive": {
      const { name, names, timeout, max, close } = action;
      witness.receives(name, timeout);
      // Of any names: the types of the jobs of a simulation say none.
      const receive = step.receive as (name: string, options: ReceiveOptions) => Promise<ReceivedMessage | null>;
      const got = await receive(name, {
        names,
        ...(timeout === null ? {} : { timeout }),
        ...(max === null ? {} : { max }),
        ...(close === null ? {} : { close }),
      });
      witness.received(name, got);
      return witness.saw(`received ${name} ${JSON.stringify(got)}`);
    }
    case "prepare": {
      witness.waits(action.name, action.timeout);
      const wait = await step.prepareWait(action.name, options(action));
      witness.saw(`prepared ${JSON.stringify(wait)}`);
      await perform(action.meanwhile, step, witness);
      const result = await step.waitFor(wait);
      witness.waited({ id: wait.id }, result);
      return witness.saw(`waited ${action.name} ${JSON.stringify(result)}`);
    }
    case "all":
      witness.branches();
      await Promise.all(action.branches.map((branch) => perform(branch, step, witness)));
      return;
    case "race":
      witness.branches();
      await Promise.race(action.branches.map(async (branch, at) => {
        await perform(branch, step, witness);
        witness.saw(`branch ${at}`);
      }));
      return;
    case "repeat":
      for (let i = 0; i < action.times; i++) await perform(action.body, step, witness);
      return;
    case "catch":
      try {
        await perform(action.body, step, witness);
      } catch (error) {
        witness.saw(`caught ${(error as Error).name}: ${(error as Error).message}`);
      }
      return;
    case "progress":
      step.progress(action.current, 100, witness.remark());
      step.log.info("progress", { current: action.current });
      return await witness.idles(action.current % 8);
    case "idle":
      return await witness.idles(action.turns);
    case "patch": {
      const isNew = await step.patch(action.name);
      witness.patched(action.name, isNew);
      witness.saw(`patch ${action.name} ${isNew}`);
      return isNew ? await perform(action.body, step, witness) : undefined;
    }
    case "crash":
      return await witness.crashes(action.times);
    case "throw":
      throw new Error("the program fails");
    case "invoke":
    case "invokeAll":
    case "trigger":
      return await call(action, step, witness);
  }
}

async function call(action: CallAction, step: StepContext, witness: BodyWitness): Promise<void> {
  const { name, do: kind } = action;
  const job = witness.jobOf(action.jobName);
  witness.asks(kind === "trigger" ? "trigger" : "children", name);
  witness.calls(action);
  let result: CallResult;
  try {
    result = await perhapsAll(action, step, job);
  } catch (error) {
    witness.called(action, { error: error as Error });
    witness.saw(`${kind} ${name} failed: ${(error as Error).message}`);
    throw error;
  }
  witness.called(action, result);
  witness.saw(`${kind} ${name} ${JSON.stringify(result)}`);
}

async function perhapsAll({ do: kind, name, items }: CallAction, step: StepContext, job: Job): Promise<CallResult> {
  if (kind === "invokeAll") {
    const all = items.map(({ program, options }) => ({ input: { program }, ...options }));
    return { outcomes: await step.invokeAll(name, job, all) };
  }
  const [{ program, options }] = items as [ChildItem];
  return { output: await step[kind](name, job, { program }, options) };
}

async function runStep(action: StepAction, step: StepContext, witness: BodyWitness): Promise<void> {
  const { name, attempts, delay, timeout } = action;
  let value: string;
  witness.asks("step", name);
  try {
    value = await step.run(name, (tools) => witness.attempts(action, tools), {
      retry: { maxAttempts: attempts, delay },
      ...(timeout === null ? {} : { timeout }),
    });
  } catch (error) {
    const failure = (error as Error).message;
    witness.stepped(name, { failure });
    witness.saw(`step ${name} failed: ${failure}`);
    throw error;
  }
  witness.stepped(name, { value });
  witness.saw(`step ${name} ${value}`);
}

function options({ timeout }: { timeout: number | null }): { timeout?: number; metadata: Json } {
  const actions = [0, 1].map((payload) => ({ label: `answer ${payload}`, payload }));
  return { metadata: { actions }, ...(timeout === null ? {} : { timeout }) };
}
