import { type Duration, readDuration } from "../../values/duration.ts";
import { ValidationError } from "../../model/error.ts";
import { waitSchemaOf } from "../../model/job.ts";
import type { PayloadOptions, PreparedWait, WaitForSignalOptions } from "../../model/job/step_calls.ts";
import type { Receive } from "../../model/message.ts";
import { decode, type JsonText } from "../../values/json.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { checkSchema, jsonSchemaOf, parse, type Schema } from "../../model/schema.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { NewPause } from "../../store/pause_request.ts";
import type { Deadline, PauseKind, PauseRecord, Wait, WaitResult } from "../../model/wait.ts";
import type { Execution } from "../execution.ts";
import { isOver, type OverPause, type Parking } from "./parking.ts";
import type { RecordedHistory } from "../replay/recorded_history.ts";
import type { Replay, ReplayGuard } from "../replay/replay_guard.ts";
import { StepNameNumbers } from "../replay/step_name_numbers.ts";

// The last instant that a date can show (ECMAScript, "Time Values and Time Range").
const LAST_INSTANT = 8_640_000_000_000_000;

const PAYLOAD_OPTIONS: Record<keyof PayloadOptions<unknown>, true> = { schema: true };
const WAIT_OPTIONS: Record<keyof WaitForSignalOptions | "schema", true> = {
  timeout: true,
  deadline: true,
  metadata: true,
  ...PAYLOAD_OPTIONS,
};

/** Implements the pauses of a job: returns the results of those that are over, and pauses on the others. */
export class PauseCalls {
  readonly #execution: Execution;
  readonly #parking: Parking;
  readonly #history: RecordedHistory;
  readonly #guard: ReplayGuard;
  readonly #waitNames = new StepNameNumbers("wait");
  readonly #sleepNames = new StepNameNumbers("sleep");
  readonly #patchNames = new StepNameNumbers("patch");
  /** The pauses of the claim, and those prepared since. */
  readonly #known = new Map<string, PauseRecord>();
  /** The schemas of the waits that the job has prepared. */
  readonly #schemas = new Map<string, Schema>();

  constructor(execution: Execution, parking: Parking, { history, guard }: Replay) {
    this.#execution = execution;
    this.#parking = parking;
    this.#history = history;
    this.#guard = guard;
    for (const record of execution.claim.pauses) this.#known.set(record.id, record);
  }

  /** See `StepContext.sleep()` and `StepContext.sleepUntil()`. */
  async sleep(givenName: string, until: { after: Duration } | { at: number }): Promise<void> {
    this.check();
    const end = "at" in until
      ? until
      : { afterMs: readDuration(until.after, `The length of sleep "${givenName}"`, -Infinity) };
    const deadline = this.#checkDeadline(end, `sleep "${givenName}"`);
    const name = this.#sleepNames.begin(givenName);
    try {
      await this.over(this.#history.pause("sleep", name) ?? this.newPause("sleep", name, deadline, undefined));
    } finally {
      this.#sleepNames.end(givenName);
    }
  }

  /** See `StepContext.prepareWait()`. */
  async prepareWait(
    givenName: string,
    options: WaitForSignalOptions & PayloadOptions<unknown>,
  ): Promise<PreparedWait<unknown>> {
    this.check();
    checkOptionNames(options, WAIT_OPTIONS, "step.prepareWait()");
    const schema = this.#schemaOf(givenName, options);
    const deadline = this.deadlineOf("wait", givenName, options);
    const name = this.#waitNames.begin(givenName);
    try {
      const known = this.#history.pause("wait", name);
      if (known !== undefined) await this.#execution.untilDelivered(known.preparedNo ?? 0);
      const payloadSchema = payloadSchemaOf(schema);
      const prepared = known ?? await this.#prepare(name, deadline, options.metadata, payloadSchema);
      if (schema !== undefined) this.#schemas.set(prepared.id, schema);
      const wait = this.#toPreparedWait(prepared);
      return payloadSchema === null ? wait : { ...wait, payloadSchema: JSON.parse(payloadSchema) };
    } finally {
      this.#waitNames.end(givenName);
    }
  }

  /** See `StepContext.waitFor()`. */
  async waitFor(wait: Pick<Wait, "id">, options: PayloadOptions<unknown>): Promise<WaitResult<unknown>> {
    this.check();
    checkOptionNames(options, PAYLOAD_OPTIONS, "step.waitFor()");
    if (typeof wait?.id !== "string") {
      throw new TypeError(`step.waitFor() needs a wait: what step.prepareWait() returns, not ${kindOf(wait)}`);
    }
    const record = this.#known.get(wait.id);
    if (record?.kind !== "wait") throw new TypeError(`Run "${this.#execution.claim.run.id}" has no wait "${wait.id}"`);
    return await this.#result(record, this.#schemaOf(record.name, options, this.#schemas.get(wait.id)));
  }

  /** See `StepContext.wait()`. The wait is created by the transaction that parks the run. */
  async wait(
    givenName: string,
    options: WaitForSignalOptions & PayloadOptions<unknown>,
  ): Promise<WaitResult<unknown>> {
    this.check();
    checkOptionNames(options, WAIT_OPTIONS, "step.wait()");
    const schema = this.#schemaOf(givenName, options);
    const deadline = this.deadlineOf("wait", givenName, options);
    const name = this.#waitNames.begin(givenName);
    try {
      const known = this.#history.pause("wait", name);
      const pause = known ?? {
        ...this.newPause("wait", name, deadline, options.metadata),
        payloadSchema: payloadSchemaOf(schema),
      };
      return await this.#result(pause, schema);
    } finally {
      this.#waitNames.end(givenName);
    }
  }

  /** See `StepContext.patch()`. */
  async patch(givenName: string): Promise<boolean> {
    this.check();
    const name = this.#patchNames.begin(givenName);
    try {
      const known = this.#history.pause("patch", name);
      if (known !== undefined) {
        await this.#execution.untilDelivered(known.preparedNo ?? 0);
        return decode(known.metadata) === true;
      }
      const isFurther = await this.#guard.isFurther();
      await this.#begin({ ...this.newPause("patch", name, null, !isFurther), prepared: true });
      return !isFurther;
    } finally {
      this.#patchNames.end(givenName);
    }
  }

  /** Returns what ended a wait. The run does not park while a schema checks the payload. */
  async #result(pause: PauseRecord | NewPause, schema: Schema | undefined): Promise<WaitResult<unknown>> {
    const over = await this.over(pause);
    return schema === undefined
      ? toResult(over)
      : await this.#execution.track(toCheckedResult(over, schema, this.#execution));
  }

  /**
   * Resolves when a pause is over, in the order of the records if it ended before this execution.
   *
   * @param receive What the code asks for now, if it is a receive.
   */
  async over(pause: PauseRecord | NewPause, receive?: Receive): Promise<OverPause> {
    const known = "deadline" in pause ? undefined : pause;
    if (known !== undefined && isOver(known)) {
      await this.#execution.untilDelivered(known.resolution.recordedNo);
      return known;
    }
    if (known === undefined) await this.#untilMayBegin(pause as NewPause);
    this.#execution.order.noteNew();
    const over =
      await (known === undefined
        ? this.#execution.begin(() => this.#parking.ask(pause as NewPause))
        : this.#askKnown(known, receive));
    this.#known.set(over.id, over);
    return over;
  }

  /**
   * Checks the store at once, even if the lease has to be renewed first, so that the answer comes before any later
   * record.
   */
  async #askKnown(record: PauseRecord, receive: Receive | undefined): Promise<OverPause> {
    await this.#execution.mayAsk();
    const pause = toNewPause(record);
    return await this.#parking.askKnown(receive === undefined ? pause : { ...pause, receive });
  }

  async #prepare(
    name: string,
    deadline: Deadline,
    metadata: unknown,
    payloadSchema: JsonText | null,
  ): Promise<PauseRecord> {
    const pause = { ...this.newPause("wait", name, deadline, metadata), prepared: true, payloadSchema };
    await this.#untilMayBegin(pause);
    return await this.#begin(pause);
  }

  /** Resolves when a pause that is not recorded may begin. */
  async #untilMayBegin({ kind, name }: NewPause): Promise<void> {
    if (kind === "patch") return;
    const isNew = { kind, name };
    if (this.#guard.mustWait(isNew)) await this.#guard.untilMayBegin(isNew);
  }

  async #begin(pause: NewPause): Promise<PauseRecord> {
    const execution = this.#execution;
    execution.order.noteNew();
    const record = await execution.begin(() => execution.track(this.#prepareInTurn(pause)));
    this.#known.set(record.id, record);
    return record;
  }

  async #prepareInTurn(pause: NewPause): Promise<PauseRecord> {
    const record = await this.#execution.order.expect(this.#parking.prepare(pause));
    await this.#parking.untilTurn(record.preparedNo ?? 0);
    return record;
  }

  /** A pause to ask for. */
  newPause(kind: PauseKind, name: string, deadline: Deadline, metadata: unknown): NewPause {
    const id = this.#execution.deps.host.newId();
    const text = this.#execution.encode(metadata, `The metadata of ${kind} "${name}"`);
    return { id, kind, name, deadline, children: null, metadata: text, prepared: false };
  }

  /** The schema of a wait: the given one, or that of its job. What is no schema is refused when the job asks. */
  #schemaOf(name: string, { schema }: PayloadOptions<unknown>, prepared?: Schema): Schema | undefined {
    if (schema === undefined) return prepared ?? waitSchemaOf(this.#execution.definition.job, name);
    checkSchema(schema, `The schema of wait "${name}"`);
    return schema;
  }

  /** The deadline of a wait, or of a receive, as its options have it. */
  deadlineOf(
    kind: "wait" | "receive",
    name: string,
    { timeout, deadline }: Pick<WaitForSignalOptions, "timeout" | "deadline">,
  ): Deadline {
    const subject = `${kind} "${name}"`;
    if (timeout !== undefined && deadline !== undefined) {
      throw new TypeError(
        `${kind === "wait" ? "Wait" : "Receive"} "${name}" cannot have both a timeout and a deadline`,
      );
    }
    if (deadline !== undefined) return this.#checkDeadline({ at: new Date(deadline).getTime() }, subject);
    if (timeout === undefined) return null;
    const afterMs = readDuration(timeout, `The timeout of ${subject}`, -Infinity);
    return this.#checkDeadline({ afterMs }, subject);
  }

  #checkDeadline<D extends { afterMs: number } | { at: number }>(deadline: D, subject: string): D {
    const at = "at" in deadline ? deadline.at : this.#execution.deps.host.now() + deadline.afterMs;
    if (!(Math.abs(at) <= LAST_INSTANT)) throw new RangeError(`The end of ${subject} is not a valid date`);
    return deadline;
  }

  /** Refuses a pause inside the function of a step. */
  check(): void {
    const outer = this.#execution.deps.currentStep.getStore();
    if (outer !== undefined) {
      throw new TypeError(`A run cannot pause inside the function of step "${outer}": pause before or after that step`);
    }
  }

  /** The wait in its prepared state, so that a replay returns the same. */
  #toPreparedWait({ id, name, metadata, createdAt, deadlineAt }: PauseRecord): Wait {
    return {
      id,
      runId: this.#execution.claim.run.id,
      name,
      metadata: decode(metadata) ?? null,
      status: "pending",
      outcome: null,
      payload: null,
      signalId: null,
      signalledBy: null,
      createdAt: isoTime(createdAt),
      deadlineAt: isoTime(deadlineAt),
      suspendedAt: null,
      resolvedAt: null,
      firstResumedAt: null,
    };
  }
}

// A longer description is not kept: a link says so, too.
const MAX_SCHEMA_LENGTH = 8_192;

/** What a schema asks of a payload, as JSON; `null`: it does not say it, or says too much. */
function payloadSchemaOf(schema: Schema | undefined): JsonText | null {
  const described = schema === undefined ? null : jsonSchemaOf(schema);
  const text = described === null ? null : JSON.stringify(described);
  return text === null || text.length > MAX_SCHEMA_LENGTH ? null : text;
}

function toNewPause({ id, kind, name, metadata, deadlineAt }: PauseRecord): NewPause {
  return {
    id,
    kind,
    name,
    children: null,
    metadata,
    deadline: deadlineAt === null ? null : { at: deadlineAt },
    prepared: false,
  };
}

function toResult({ resolution }: OverPause): WaitResult {
  if (resolution.outcome !== "signal") return { outcome: "timeout" };
  return { outcome: "signal", payload: decode(resolution.payload) ?? null, signalId: resolution.signalId };
}

async function toCheckedResult(
  over: OverPause,
  schema: Schema,
  { claim, deps, abortSignal }: Execution,
): Promise<WaitResult<unknown>> {
  const result = toResult(over);
  if (result.outcome === "timeout") return result;
  const subject = `The schema of wait "${over.name}" of job "${claim.run.jobName}"`;
  const parsed = await parse(schema, result.payload, { host: deps.host, subject, abortSignal });
  if (parsed.ok) return { ...result, payload: parsed.value };
  const { issues, issuesLeftOut } = parsed;
  const options = { code: "invalid_input", issues, issuesLeftOut } as const;
  throw new ValidationError(`The payload of wait "${over.name}" does not fit its schema`, options);
}
