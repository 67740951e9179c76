import { ConflictError, NotFoundError } from "../../../model/error.ts";
import { writeParameter } from "../database/portable_text.ts";
import type { WriteKind } from "../sql/writes/apply.ts";

/** The parameter of a write: its kind, and what the function of this kind takes. */
export interface WriteParameter {
  kind: WriteKind;
  /** The run that it changes. */
  runId?: string;
  /** The runs whose leases it extends, or to whose streams it adds. */
  renewals?: readonly { runId: string }[];
  writes?: readonly { runId: string }[];
  /** What an attempt changes in streams. */
  chunks?: readonly unknown[];
  /** Of a step: its name, its status, how many attempts have ended, and whether the last of its reports is that it began. */
  name?: string;
  status?: string;
  attempts?: number;
  startsLast?: boolean;
  /** What the execution has reported before it. */
  reports?: readonly unknown[];
  /** The runs that it adds. */
  runs?: readonly AddedRun[];
  /** The pauses that it prepares. */
  pauses?: readonly { children: unknown }[];
}

/** What a run that is added depends on. */
export interface AddedRun {
  readonly [field: string]: unknown;
  names?: readonly string[];
  concurrencyKey?: string | null;
  idempotencyKey?: string | null;
  scheduleName?: string;
}

/**
 * How a write is performed: `steps`, `endings` and `triggers` are written by a few statements for all of a group, the
 * `others` one after another.
 */
export type WriteList = "steps" | "endings" | "triggers" | "others";

/** A write of a group. */
export interface GroupedWrite {
  kind: WriteKind;
  /** Its parameter as JSON. */
  text: string;
  list: WriteList;
  /** Whether it can be performed beside groups of other runs: it is a step, items, a pause without children, or an end. */
  isOwn: boolean;
  /** The runs that it changes. */
  runIds: readonly string[];
  /** Of a step its name, which no other step of the same run in the same list has. */
  name: string;
  /** How many locks the runs that it adds need. */
  locks: number;
}

/** A group as it is sent, and the indexes of its writes in each list. */
interface WriteGroup {
  text: string;
  lists: Record<WriteList, number[]>;
}

/** Prepares a write for a group. */
export function toGroupedWrite(write: WriteParameter): GroupedWrite {
  const { kind, runId, renewals = [], writes = renewals, name = "", runs = [] } = write;
  const runIds = runId === undefined ? writes.map((one) => one.runId) : [runId];
  const locks = runs.reduce((sum, run) => sum + locksOf(run), 0);
  return { kind, text: writeParameter(write), list: listOf(write), isOwn: isOwn(write), runIds, name, locks };
}

function locksOf({ names = [], concurrencyKey = null, idempotencyKey = null, scheduleName }: AddedRun): number {
  return Number(concurrencyKey !== null) + (idempotencyKey === null ? 0 : names.length) +
    Number(scheduleName !== undefined);
}

function isOwn({ kind, pauses = [] }: WriteParameter): boolean {
  if (kind === "pause") return pauses.every(({ children }) => children === null);
  return kind === "save_step" || kind === "append_items" || kind === "finish";
}

function listOf(write: WriteParameter): WriteList {
  const { kind, reports = [], startsLast = false, runs = [], chunks = [] } = write;
  if (kind === "save_step") {
    const isOnlyAttempt = write.attempts === 1 && write.status !== "retrying";
    const isOnlyReport = reports.length === 0 || (reports.length === 1 && startsLast);
    return isOnlyAttempt && isOnlyReport && chunks.length === 0 ? "steps" : "others";
  }
  if (kind === "finish") return reports.length === 0 ? "endings" : "others";
  return kind === "enqueue" && runs.every(isPlain) ? "triggers" : "others";
}

// What `fn.enqueue_plain()` writes. A run that has anything else is not added together with others.
const PLAIN = ["id", "queue", "payload", "input", "schemaPrint", "labels", "labelMap", "trace"];

/** Whether a run uses nothing but labels. */
function isPlain(run: object): boolean {
  return Object.entries(run).every(([name, value]) => value === null || PLAIN.includes(name));
}

/**
 * Writes a group as the parameter of `fn.apply()`. What is in several lists of a run, or twice in one, is performed in its
 * order, one after another. So are triggers, unless all of them are plain.
 */
export function toWriteGroup(writes: readonly GroupedWrite[]): WriteGroup {
  const mixed = findMixed(writes);
  const arePlain = writes.every(({ kind, list }) => kind !== "enqueue" || list === "triggers");
  const lists: Record<WriteList, number[]> = { steps: [], endings: [], triggers: [], others: [] };
  for (const [at, { list, runIds }] of writes.entries()) {
    const isOther = (list === "triggers" && !arePlain) || runIds.some((id) => mixed.has(id));
    lists[isOther ? "others" : list].push(at);
  }
  const parts = Object.entries(lists).map(([name, list]) =>
    `"${name}":[${list.map((at) => writes[at]!.text).join(",")}]` // an index of this group
  );
  const runIds = new Set(writes.flatMap((write) => write.runIds));
  return { text: `{"runIds":${writeParameter([...runIds])},${parts.join(",")}}`, lists };
}

/** The runs whose writes have to be performed in their order. */
function findMixed(writes: readonly GroupedWrite[]): Set<string> {
  const mixed = new Set<string>();
  const listOfRun = new Map<string, WriteList>();
  const steps = new Set<string>();
  for (const { list, runIds, name } of writes) {
    for (const id of runIds) {
      const key = `${id} ${name}`;
      if ((listOfRun.get(id) ?? list) !== list || (list !== "others" && steps.has(key))) mixed.add(id);
      listOfRun.set(id, list);
      steps.add(key);
    }
  }
  return mixed;
}

/** Why a write was refused. */
export interface Refusal {
  refused: "conflict" | "not_found" | "lease_lost";
  message: string;
}

/** Whether the answer to a write is a refusal. */
export function isRefusal(answer: unknown): answer is Refusal {
  return typeof answer === "object" && answer !== null && "refused" in answer;
}

/** The error of a refusal; that of a lost lease is the caller's. */
export function toRefusalError({ refused, message }: Refusal): Error {
  return refused === "not_found" ? new NotFoundError(message) : new ConflictError(message);
}
