import { readEnd } from "../../execution/calls/end_calls.ts";
import { withoutOccurrence } from "../../values/name.ts";
import type {
  ChildHistory,
  ExportedHistory,
  HistoryFailure,
  HistoryMessage,
  HistoryName,
  HistoryRecord,
  PauseHistory,
  ReceiveHistory,
  StepHistory,
} from "../../model/exported_history.ts";
import type { Failure } from "../../model/failure.ts";
import { isoTime } from "../../values/iso_time.ts";
import { decode, encode, type Json, type JsonText } from "../../values/json.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { StepRecord } from "../../model/step.ts";
import { getMessages, getWaits } from "../../store/reads.ts";
import type { Store } from "../../store/store.ts";
import type { RunHistory } from "../../store/hold_record.ts";
import type { ChildResult, PauseKind, PauseRecord } from "../../model/wait.ts";

/** What a value of an exported history is. */
export interface RedactedValue {
  /** What it belongs to: the run, or a record of this kind. */
  kind: "run" | "step" | PauseKind;
  /** The name of the job, or of the record with its occurrence: `charge#2`. */
  name: string;
  /** Which value it is: `result` is also the payload of a signal or of a message, `error` the message of a failure. */
  part: "payload" | "input" | "output" | "result" | "metadata" | "error" | "signalId";
}

/** Options of `Engine.exportHistory()`. */
export interface ExportHistoryOptions {
  /**
   * Replaces each value before it leaves the engine. What it returns has to keep what the code of the job decides by:
   * the types and the fields, the lengths of lists that it loops over, the values of which it makes names or conditions,
   * and what the schema of the input requires. Otherwise a replay goes another way than the run. For `error` and
   * `signalId` it receives and returns a string. Who triggered, answered or cancelled is left out then. Default: values
   * stay.
   */
  redact?: (value: Json, about: RedactedValue) => unknown;
}

const OPTIONS: Record<keyof ExportHistoryOptions, true> = { redact: true };
const MAX_PART_LENGTH = 262_144;

/**
 * Does `Engine.exportHistory()`.
 *
 * @returns `null` if there is no such run.
 * @throws {TypeError} `redact` has returned something that is not JSON, or not a string where it must be one.
 */
export async function exportHistory(
  store: Store,
  runId: string,
  options: ExportHistoryOptions = {},
): Promise<ExportedHistory | null> {
  checkOptionNames(options, OPTIONS, "exportHistory()");
  if (options.redact !== undefined && typeof options.redact !== "function") {
    throw new TypeError(`redact of exportHistory() must be a function, not ${kindOf(options.redact)}`);
  }
  const found = await store.getHistory(runId);
  if (found === null) return null;
  // A replay of a clean-up asks no store how its run has ended.
  const history = found.run.endOf === null
    ? found
    : { ...found, input: JSON.stringify(await readEnd(store, decode(found.input))) };
  const children = new Map<string, ChildResult[] | null>();
  for (const pause of history.pauses) {
    if (pause.kind === "children") children.set(pause.id, await readChildren(store, pause));
  }
  const actors = options.redact === undefined ? await readActors(store, runId) : new Map<string, string>();
  return new Exporter(history, children, actors, options.redact).export();
}

/** Who has answered the waits of a run and sent its messages, by the ids of these. */
async function readActors(store: Store, runId: string): Promise<Map<string, string>> {
  const answers = (await getWaits(store, runId)).map(({ id, signalledBy }) => [id, signalledBy] as const);
  const messages = (await getMessages(store, runId)).map(({ id, sentBy }) => [id, sentBy] as const);
  return new Map([...answers, ...messages].filter((one): one is [string, string] => one[1] !== null));
}

/** The results of the children of a pause; `null`: they have not all ended, or one is lost. */
async function readChildren(store: Store, { id, childCount, resolution }: PauseRecord): Promise<ChildResult[] | null> {
  if (resolution === null) return null;
  const results: ChildResult[] = [];
  while (results.length < childCount) {
    const part = await store.readChildren(id, results.length, MAX_PART_LENGTH);
    if (part === null || part.items.length === 0) return null;
    results.push(...part.items);
  }
  return results;
}

type About = Omit<RedactedValue, "part">;

/** Converts a history. */
class Exporter {
  readonly #history: RunHistory;
  readonly #children: ReadonlyMap<string, ChildResult[] | null>;
  readonly #actors: ReadonlyMap<string, string>;
  readonly #redact: ExportHistoryOptions["redact"];

  constructor(
    history: RunHistory,
    children: ReadonlyMap<string, ChildResult[] | null>,
    actors: ReadonlyMap<string, string>,
    redact: ExportHistoryOptions["redact"],
  ) {
    this.#history = history;
    this.#children = children;
    this.#actors = actors;
    this.#redact = redact;
  }

  export(): ExportedHistory {
    const { run, input, schemaPrint, slot, copied } = this.#history;
    const about: About = { kind: "run", name: run.jobName };
    return withoutUndefined<ExportedHistory>({
      format: 1,
      runId: run.id,
      jobName: run.jobName,
      version: run.version,
      status: run.status,
      payload: this.#value(run.payload, about, "payload"),
      input: this.#value(input, about, "input"),
      schemaPrint: schemaPrint ?? undefined,
      triggeredBy: this.#actor(run.triggeredBy),
      cancelledBy: this.#actor(run.cancelledBy),
      slotAt: run.slotAt ?? undefined,
      slot: slot === null ? undefined : JSON.parse(slot),
      records: this.#records(),
      copied: copied === null ? undefined : { ...copied, unfinished: copied.unfinished.map((name) => ({ ...name })) },
      output: run.status === "completed" ? this.#value(run.output, about, "output") : undefined,
      error: run.failure === null ? undefined : this.#failure(run.failure, about),
    });
  }

  #records(): HistoryRecord[] {
    const records = [
      ...this.#history.steps.map((step) => this.#step(step)),
      ...this.#history.pauses.map((pause) => this.#pause(pause)),
    ];
    return records.sort((one, other) => positionOf(one) - positionOf(other));
  }

  #step({ name, attempts, result, recordedNo }: StepRecord): StepHistory {
    const about: About = { kind: "step", name };
    return withoutUndefined<StepHistory>({
      kind: "step",
      ...nameOf(name),
      no: recordedNo,
      status: result.status,
      attempts,
      result: result.status === "completed" ? this.#value(result.output, about, "result") : undefined,
      error: result.status === "completed" ? undefined : this.#failure(result.failure, about),
    });
  }

  #pause(pause: PauseRecord): HistoryRecord {
    const { kind, name, metadata, preparedNo, resolution } = pause;
    if (kind === "patch") return { kind, ...nameOf(name), no: preparedNo ?? 0, result: decode(metadata) === true };
    if (kind === "receive") return this.#receive(pause);
    if (kind !== "children") return this.#waitOrSleep(pause, { kind, name });
    const results = this.#children.get(pause.id) ?? null;
    return {
      kind,
      ...nameOf(name),
      no: resolution?.recordedNo ?? null,
      count: pause.childCount,
      total: pause.childTotal,
      result: results?.map((child) => this.#child(child, { kind, name })) ?? null,
    };
  }

  #waitOrSleep(
    { id, name, metadata, deadlineAt, createdAt, preparedNo, resolution }: PauseRecord,
    about: About & { kind: PauseHistory["kind"] },
  ): PauseHistory {
    const signal = resolution?.outcome === "signal" ? resolution : null;
    return withoutUndefined<PauseHistory>({
      kind: about.kind,
      ...nameOf(name),
      id,
      no: resolution?.recordedNo ?? null,
      preparedNo,
      outcome: resolution === null ? null : signal === null ? "timeout" : "signal",
      result: signal === null ? undefined : this.#value(signal.payload, about, "result"),
      signalId: signal === null ? undefined : this.#text(signal.signalId, about, "signalId"),
      signalledBy: this.#actors.get(id),
      metadata: this.#value(metadata, about, "metadata"),
      createdAt: isoTime(createdAt),
      deadlineAt: isoTime(deadlineAt) ?? undefined,
    });
  }

  #receive({ name, deadlineAt, createdAt, resolution, messages = [] }: PauseRecord): ReceiveHistory {
    const taken = messages.map(({ id, name: message, input, acceptedAt }): HistoryMessage =>
      withoutUndefined({
        id,
        name: message,
        payload: this.#value(input, { kind: "receive", name }, "result"),
        acceptedAt: isoTime(acceptedAt),
        sentBy: this.#actors.get(id),
      })
    );
    return withoutUndefined<ReceiveHistory>({
      kind: "receive",
      ...nameOf(name),
      no: resolution?.recordedNo ?? null,
      messages: resolution === null ? null : taken,
      createdAt: isoTime(createdAt),
      deadlineAt: isoTime(deadlineAt) ?? undefined,
    });
  }

  #child({ run, status, output, failure, failedStepName }: ChildResult, about: About): ChildHistory {
    return withoutUndefined({
      runId: run.id,
      jobName: run.jobName,
      status,
      output: status === "completed" ? this.#value(output, about, "result") : undefined,
      error: failure === null ? undefined : this.#failure(failure, about),
      failedStepName: failedStepName ?? undefined,
    });
  }

  #failure({ kind, name, message, cause }: Failure, about: About): HistoryFailure {
    return withoutUndefined({
      kind,
      name,
      message: this.#text(message, about, "error"),
      cause: cause === null ? undefined : this.#failure(cause, about),
    });
  }

  #actor(name: string | null): string | undefined {
    return this.#redact === undefined ? name ?? undefined : undefined;
  }

  #value(text: JsonText | null, about: About, part: RedactedValue["part"]): Json | undefined {
    return text === null ? undefined : this.#given(decode(text)!, about, part);
  }

  #given(value: Json, about: About, part: RedactedValue["part"]): Json | undefined {
    if (this.#redact === undefined) return value;
    const redacted = this.#redact(value, { ...about, part });
    return decode(
      encode(redacted, { subject: `What redact() returned for ${partOf(about, part)}`, maxBytes: Infinity }),
    );
  }

  #text(value: string, about: About, part: RedactedValue["part"]): string {
    const redacted = this.#given(value, about, part);
    if (typeof redacted === "string") return redacted;
    throw new TypeError(`redact() must return a string for ${partOf(about, part)}, not ${kindOf(redacted)}`);
  }
}

function nameOf(full: string): HistoryName {
  const name = withoutOccurrence(full);
  return { name, occurrence: name === full ? 1 : Number(full.slice(name.length + 1)) };
}

function positionOf(record: HistoryRecord): number {
  const preparedNo = "preparedNo" in record ? record.preparedNo : null;
  return record.no ?? preparedNo ?? Infinity;
}

function partOf({ kind, name }: About, part: string): string {
  return `the ${part} of ${kind} "${name}"`;
}
