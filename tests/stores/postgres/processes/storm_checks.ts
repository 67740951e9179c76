import type { Client } from "pg";
import { ALONE_FROM } from "../../../../src/stores/rules.ts";
import { queueName } from "../../../../src/stores/queue_name.ts";
import { readAcknowledged } from "../../../processes/acknowledged_steps.ts";
import { findFault } from "../postgres_faults.ts";
import type { Receipt, StormClient } from "./storm_client.ts";
import { type Answered, CHILDREN, type Family, RATE } from "./storm_jobs.ts";

/** A run as it is stored. Instants are in milliseconds. */
export interface RunRow {
  id: string;
  seq: number;
  job: string;
  queue: string;
  status: string;
  key: string | null;
  output: unknown;
  error: string | null;
  created_at: number;
  started_at: number | null;
  slot_at: number | null;
  retrigger_of: string | null;
  parent_id: string | null;
}

/** What is stored when a storm is over. */
export interface Stored {
  runs: Map<string, RunRow>;
  /** The results of steps, by run and step. */
  steps: Map<string, Map<string, string>>;
}

/** Reads everything. */
export async function readStored(client: Client, schema: string): Promise<Stored> {
  const { rows } = await client.query(
    `select id, seq::int, job, queue, status, concurrency_key as key, output, error, created_at::float8,
       started_at::float8, slot_at::float8, retrigger_of, parent_id from ${schema}.runs order by seq`,
  );
  const runs = new Map(rows.map((row) => [row.id, { ...row, output: JSON.parse(row.output) } as RunRow]));
  const steps = new Map<string, Map<string, string>>([...runs.keys()].map((id) => [id, new Map()]));
  const recorded = await client.query(
    `select r.id, s.name, s.output from ${schema}.steps s join ${schema}.runs r on r.seq = s.run_seq
     where s.status = 'completed' order by s.run_seq, s.position`,
  );
  for (const { id, name, output } of recorded.rows) steps.get(id)!.set(name, JSON.parse(output));
  return { runs, steps };
}

/** What is wrong when a storm is over: its promises, one after another. */
export async function findProblems(
  stored: Stored,
  lines: string[][],
  client: StormClient,
  database: Client,
  schema: string,
): Promise<string[]> {
  const fault = await findFault(database, schema);
  return [
    ...findWrongRuns(stored, client),
    ...findWrongSteps(stored, lines, client.receipts),
    ...findWrongOrder(stored, lines),
    ...findWrongFamilies(stored),
    ...findWrongStarts(stored, client),
    ...findWrongSlots(stored),
    ...findWrongStreams(stored, client),
    ...(fault === null ? [] : [fault]),
  ];
}

/** Each trigger, retry, cancel, delete and signal that was acknowledged, and nothing that was not asked for. */
function findWrongRuns({ runs }: Stored, { receipts, retries }: StormClient): string[] {
  const problems: string[] = [];
  for (const receipt of receipts.values()) {
    const run = runs.get(receipt.id);
    const { isCancelAsked, isCancelled, isDeleteAsked, isDeleted } = receipt;
    // What was cancelled is deleted after a while.
    const mayBeGone = isDeleteAsked || isCancelAsked;
    if (run === undefined) {
      if (!mayBeGone) problems.push(`${describe(receipt)} was acknowledged, and is gone`);
      continue;
    }
    if (isDeleted) problems.push(`${describe(receipt)} was deleted, and is there`);
    if (isCancelled !== (run.status === "cancelled") && !(isCancelAsked && !isCancelled)) {
      problems.push(`${describe(receipt)} is ${run.status}`);
    }
    if (run.status !== "completed" && run.status !== "cancelled") {
      problems.push(`${describe(receipt)} is ${run.status}: ${run.error}`);
    }
    if (receipt.answer !== null && run.status === "completed" && (run.output as Answered).answer !== receipt.answer) {
      problems.push(`${describe(receipt)} was signalled "${receipt.answer}", and has ${JSON.stringify(run.output)}`);
    }
  }
  for (const [id, of] of retries) {
    if (runs.get(id)?.retrigger_of !== of) problems.push(`the retry ${id} of ${of} was acknowledged, and is gone`);
  }
  for (const { id, job, status, error, retrigger_of, parent_id, slot_at } of runs.values()) {
    const isMade = retrigger_of !== null || parent_id !== null || slot_at !== null;
    if (!receipts.has(id) && !isMade) problems.push(`nobody has asked for ${job} ${id}`);
    if (isMade && status !== "completed" && status !== "cancelled") {
      problems.push(`${job} ${id} is ${status}: ${error}`);
    }
  }
  return problems;
}

/** What was acknowledged is recorded, was executed once, and is what the run returns. */
export function findWrongSteps(
  { runs, steps }: Stored,
  lines: string[][],
  receipts: ReadonlyMap<string, Receipt>,
): string[] {
  const problems: string[] = [];
  let acknowledged: Map<string, Map<string, string>>;
  try {
    acknowledged = readAcknowledged(lines.filter(([word]) => word === "start" || word === "ack") as string[][]);
  } catch (error) {
    return [(error as Error).message];
  }
  for (const [id, values] of acknowledged) {
    const recorded = steps.get(id);
    const receipt = receipts.get(id);
    if (recorded === undefined) {
      // Children are cancelled with their parents.
      const mayBeGone = receipt === undefined || receipt.isDeleteAsked || receipt.isCancelAsked;
      if (!mayBeGone) problems.push(`run ${id}, which was executed, is gone`);
      continue;
    }
    for (const [name, value] of values) {
      if (recorded.get(name) !== value) problems.push(`${name} of ${id} was ${value}, and is ${recorded.get(name)}`);
    }
  }
  const versions = new Map(lines.filter(([word]) => word === "version").map(([, id, version]) => [id, version]));
  for (const { id, job, status, output, queue } of runs.values()) {
    if (status !== "completed") continue;
    const values = [...steps.get(id)!.values()];
    if ((job === "keyed" || job.startsWith("plain")) && JSON.stringify(output) !== JSON.stringify(values)) {
      problems.push(`${job} ${id} has returned ${JSON.stringify(output)}, and recorded ${JSON.stringify(values)}`);
    }
    const version = versions.get(id);
    if (version !== undefined && queue !== queueName("plain", Number(version))) {
      problems.push(`${id} of ${queue} was executed by version ${version}`);
    }
  }
  return problems;
}

/**
 * The runs of a key begin in their order, and none goes on after its end. A run whose first executions were all lost before
 * it began is claimed alone and later, and others of its key come first: docs/concepts/leases.md.
 */
export function findWrongOrder({ runs }: Stored, lines: string[][]): string[] {
  const problems: string[] = [];
  const newest = new Map<string, number>();
  const begun = new Map<string, Set<number>>();
  const ended = new Map<string, number>();
  for (const [word, id, executionText] of lines as [string, string, string][]) {
    const run = runs.get(id);
    if (word === "end") ended.set(id, newest.get(id) ?? 0);
    if (word !== "begin") continue;
    const execution = Number(executionText);
    // An older execution does not know yet that it has lost its lease.
    if (execution >= (ended.get(id) ?? Infinity)) problems.push(`${run?.job} ${id} is executed after its end`);
    newest.set(id, Math.max(newest.get(id) ?? 0, execution));
    if (run === undefined || run.key === null) continue;
    if (execution > ALONE_FROM && !begun.get(run.key)?.has(run.seq)) continue;
    begun.set(run.key, (begun.get(run.key) ?? new Set()).add(run.seq));
  }
  for (const [key, seqs] of begun) {
    const order = [...seqs];
    const at = order.findIndex((seq, index) => index > 0 && seq < order[index - 1]!);
    if (at < 1) continue;
    const said = order.slice(at - 1, at + 1).map((seq) => {
      const { id, status } = runs.values().find((run) => run.seq === seq)!;
      return `run ${seq} (${id}, ${status}), in ${lines.filter(([, of]) => of === id).map((line) => line.join(" "))}`;
    });
    problems.push(`a run of "${key}" began before an elder one: ${said.join("; ")}`);
  }
  return problems;
}

/** A parent has the outputs of its own children, each once. */
function findWrongFamilies({ runs }: Stored): string[] {
  const problems: string[] = [];
  const seen = new Set<string>();
  for (const { id, job, status, output } of runs.values()) {
    if (job !== "parent" || status !== "completed") continue;
    const { first, others } = output as Family;
    if (others.length !== CHILDREN) problems.push(`parent ${id} has ${others.length} children`);
    for (const result of [first, ...others]) {
      const child = runs.get(result.runId);
      if (child?.parent_id !== id || JSON.stringify(child.output) !== JSON.stringify(result)) {
        problems.push(`parent ${id} has seen ${JSON.stringify(result)}, which is ${JSON.stringify(child)}`);
      }
      if (seen.has(result.runId)) problems.push(`${result.runId} is a child of two`);
      seen.add(result.runId);
    }
  }
  for (const { id, job, status, parent_id: parent } of runs.values()) {
    if (job === "child" && status === "completed" && !seen.has(id) && runs.get(parent!)?.status === "completed") {
      problems.push(`the child ${id} is in no result of ${parent}`);
    }
  }
  return problems;
}

/** None starts before it may, and in no period more than the rate allows. */
function findWrongStarts({ runs }: Stored, { receipts }: StormClient): string[] {
  const tooEarly = [...runs.values()].filter(({ id, created_at: createdAt, started_at: startedAt }) =>
    startedAt !== null && startedAt < createdAt + (receipts.get(id)?.delayMs ?? 0)
  );
  const starts = [...runs.values()].filter(({ job, started_at: at }) => job === "rated" && at !== null)
    .map(({ started_at: at }) => at!).sort((left, right) => left - right);
  const tooMany = starts.filter((at, n) => n >= RATE.limit && at - starts[n - RATE.limit]! < RATE.period);
  return [
    ...tooEarly.map(({ id, job }) => `${job} ${id} started too early`),
    ...tooMany.map((at) => `${RATE.limit + 1} runs started in the period before ${at}`),
  ];
}

/** Each second from the first slot to the last one has one run. */
function findWrongSlots({ runs }: Stored): string[] {
  const slots = [...runs.values()].filter(({ slot_at: at }) => at !== null).map(({ slot_at: at }) => at!)
    .sort((left, right) => left - right);
  if (slots.length < 2) return [`the schedule has fired ${slots.length} times`];
  return slots.flatMap((at, n) =>
    n === 0 || at === slots[n - 1]! + 1_000 ? [] : [`slot ${at} is after ${slots[n - 1]}`]
  );
}

const LAST = ["run:complete", "run:fail", "run:cancel", "run:delete"];

/** A stream has each event once, what is recorded, and an end. */
function findWrongStreams({ runs, steps }: Stored, { followed }: StormClient): string[] {
  return followed.flatMap(({ id, events, error }) => {
    const run = runs.get(id);
    // Nobody can follow what is deleted already.
    if (error !== null) return run === undefined ? [] : [`the stream of ${id} has failed: ${error}`];
    const completed = events.filter((event) => event.type === "step:complete");
    const names = completed.map(({ stepName }) => stepName);
    const wrong = run === undefined
      ? []
      : completed.filter(({ stepName, output }) => steps.get(id)!.get(stepName) !== output);
    return [
      ...(LAST.includes(events.at(-1)?.type ?? "") ? [] : [`the stream of ${id} ended with ${events.at(-1)?.type}`]),
      ...(new Set(names).size === names.length ? [] : [`the stream of ${id} has a step twice: ${names}`]),
      ...wrong.map(({ stepName, output }) => `the stream of ${id} has ${output} of ${stepName}`),
    ];
  });
}

function describe({ job, id }: Receipt): string {
  return `${job} ${id}`;
}
