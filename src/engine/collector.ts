import type { Job, JobInput, StepContext } from "../model/job.ts";
import { defineJob } from "../model/job/define_job.ts";
import type { ReceivedMessage, SendResult } from "../model/message.ts";
import { checkSchema, type Schema, type SchemaInput, type SchemaOutput } from "../model/schema.ts";
import { type Duration, readDuration } from "../values/duration.ts";
import { isInstance, kindOf, propertyOf } from "../values/unknown_values.ts";
import type { Json, Jsonify } from "../values/json.ts";
import { checkName } from "../values/name.ts";
import { checkOptionNames, namesOf } from "../values/option_names.ts";
import { byteLength } from "../values/text.ts";
import type { Engine } from "./engine.ts";
import type { Jobs } from "./job_handle.ts";

/** Nothing, if a job takes what is given to it; else what it should have. */
export type Taking<Input, Given> = [Given] extends [Input] ? unknown : { readonly input: Schema<Given> };

/** The definition of a collector, for {@linkcode defineCollector}. */
export interface CollectorDefinition<
  S extends Schema,
  Into extends Job,
  Name extends string = string,
  Pick extends "newest" | undefined = undefined,
> {
  /** The name of the job that collects: 1 to 127 characters, unique in an engine. */
  name: Name;
  /** A Standard Schema of an item. */
  item: S;
  /** What items are collected by: a string, which may have 127 characters. */
  key: (item: SchemaInput<S>) => string;
  /** The job that is triggered with the items, in the order in which they came. */
  into: Into & Taking<JobInput<Into>, Pick extends "newest" ? Jsonify<SchemaOutput<S>> : Jsonify<SchemaOutput<S>>[]>;
  /** It is triggered when no item has come for so long, */
  quiet: Duration;
  /** or so long after the first one, */
  maxDelay: Duration;
  /** or when so many have come, up to 1,000. Default: 1,000. */
  maxItems?: number;
  /** `newest`: the job is triggered with the last item alone. Default: with an array of all. */
  pick?: Pick;
}

/** A job that collects items, made by {@linkcode defineCollector}. */
export interface Collector<S extends Schema = Schema, Name extends string = string>
  extends Job<{ key: string }, Json, Name, { item: S }> {
  /** What an item is collected by. */
  readonly keyOf: (item: SchemaInput<S>) => string;
}

interface Settings {
  quiet: number;
  maxDelay: number;
  maxItems: number;
}

const OPTIONS = namesOf<keyof CollectorDefinition<Schema, Job>>()("name item key into quiet maxDelay maxItems pick");
const MAX_ITEMS = 1_000;
// A key and a name make a concurrency key.
const MAX_NAME = 127;
// After so many items a run ends, and the next item begins another one: a history does not grow without end.
const LONG = 1_000;
// Less than what a value may take unless the engine says otherwise.
const MAX_BATCH_BYTES = 1_000_000;

/**
 * Defines a job that collects items and triggers another job with them: one run for each key, from the first item until
 * there are none. Give it to the engine, with the other job, and hand items to {@linkcode collect}.
 *
 * @throws {ValidationError} The name is not valid.
 * @throws {TypeError} An option is unknown or of a wrong kind.
 * @throws {RangeError} A duration or `maxItems` is out of range.
 */
export function defineCollector<
  const S extends Schema,
  Into extends Job,
  const Name extends string = string,
  const Pick extends "newest" | undefined = undefined,
>(definition: CollectorDefinition<S, Into, Name, Pick>): Collector<S, Name> {
  const { name, item, key, into, pick } = definition;
  checkName(name, "The name of a collector", MAX_NAME);
  const subject = `collector "${name}"`;
  checkOptionNames(definition, OPTIONS, `defineCollector() of ${subject}`);
  checkSchema(item, `item of ${subject}`);
  if (typeof key !== "function") throw new TypeError(`key of ${subject} must be a function, not ${kindOf(key)}`);
  if (typeof propertyOf(into, "name") !== "string") {
    throw new TypeError(`into of ${subject} must be a job: what defineJob() makes, not ${kindOf(into)}`);
  }
  if (pick !== undefined && pick !== "newest") throw new TypeError(`pick of ${subject} must be "newest", if it is set`);
  const settings = readSettings(definition, subject);
  const handOver = (step: StepContext, items: Json[]) =>
    pick === "newest" ? step.trigger("hand over", into, items.at(-1)) : handOverAll(step, into, items);
  const job = defineJob({
    name,
    // A run keeps the settings with which it was started: its replays make the same batches.
    input: keyWith(settings),
    messages: { item },
    recheckInput: false,
    run: (step, settings) => collectItems(step as StepContext, settings as unknown as Settings, handOver),
  });
  return { ...job, keyOf: key } as unknown as Collector<S, Name>; // its input is a key
}

/**
 * Hands an item to the run of its key, or to a new one. It resolves when the item is stored.
 *
 * @param options `id`: the same item with the same id again is not collected twice, as long as the run that has it is the
 * last one of its key.
 * @throws {ValidationError} The item does not fit the schema, or its key or the id is not valid.
 * @throws {NotFoundError} The engine does not have the collector.
 */
export async function collect<S extends Schema>(
  engine: Pick<Engine<Jobs, never>, "send">,
  collector: Collector<S>,
  item: SchemaInput<S>,
  options: { id?: string } = {},
): Promise<SendResult> {
  checkOptionNames(options, { id: true }, "collect()");
  const { name } = collector;
  const key = collector.keyOf(item);
  checkName(key, `The key of an item of collector "${name}"`, MAX_NAME);
  // A run may still hand over its last items when the next one has begun: the next one has to wait for it.
  const start = { input: { key }, concurrencyKey: `${name}/${key}` };
  return await engine.send({ job: collector, key }, "item", item, { ...options, start });
}

function readSettings(
  { quiet, maxDelay, maxItems = MAX_ITEMS }: { quiet: Duration; maxDelay: Duration; maxItems?: number },
  subject: string,
): Settings {
  const settings = {
    quiet: readDuration(quiet, `quiet of ${subject}`),
    maxDelay: readDuration(maxDelay, `maxDelay of ${subject}`),
    maxItems,
  };
  if (settings.quiet === Infinity || settings.maxDelay === Infinity) {
    throw new RangeError(`quiet and maxDelay of ${subject} must be finite`);
  }
  if (Number.isInteger(maxItems) && maxItems >= 1 && maxItems <= MAX_ITEMS) return settings;
  throw new RangeError(`maxItems of ${subject} must be an integer from 1 to ${MAX_ITEMS}`);
}

/** The schema of the input: a key, to which it adds the settings. */
function keyWith(settings: Settings): Schema<{ key: string }, { key: string } & Settings> {
  const validate = (value: unknown) => {
    const key = propertyOf(value, "key");
    return typeof key === "string"
      ? { value: { key, ...settings } }
      : { issues: [{ message: "must have a key, a string" }] };
  };
  return { "~standard": { version: 1, vendor: "holdfast", validate } };
}

async function collectItems(
  step: StepContext,
  { quiet, maxDelay, maxItems }: Settings,
  handOver: (step: StepContext, items: Json[]) => Promise<unknown>,
): Promise<void> {
  const payloads = (items: readonly ReceivedMessage[]) => items.map(({ payload }) => payload);
  const names = ["item"];
  for (let taken = 0; taken < LONG;) {
    const items: ReceivedMessage[] = await step.receive("items", {
      names,
      max: maxItems,
      timeout: 0,
      close: "timeout",
    });
    if (items.length === 0) return; // the inbox is closed: the next item begins another run
    const latest = timeOf(items[0]!) + maxDelay;
    for (let isOpen = true; isOpen && items.length < maxItems;) {
      const until = Math.min(timeOf(items.at(-1)!) + quiet, latest);
      await step.sleepUntil("quiet", new Date(until));
      const more = await step.receive("more", { names, max: maxItems - items.length, timeout: 0 });
      items.push(...more);
      isOpen = more.length > 0 && until < latest;
    }
    taken += items.length;
    await handOver(step, payloads(items));
  }
  while (true) {
    const rest: ReceivedMessage[] = await step.receive("rest", { names, max: maxItems, timeout: 0, close: "always" });
    if (rest.length === 0) return;
    await handOver(step, payloads(rest));
  }
}

/** When a message was accepted, by the clock that a sleep goes by. */
function timeOf({ acceptedAt }: ReceivedMessage): number {
  return Date.parse(acceptedAt);
}

/** Triggers a job with items: several times, if they are too large together. */
async function handOverAll(step: StepContext, into: Job, items: Json[]): Promise<void> {
  if (items.length === 1 || byteLength(JSON.stringify(items)) <= MAX_BATCH_BYTES) {
    try {
      return void await step.trigger("hand over", into, items);
    } catch (error) {
      const isTooLarge = isInstance(error, Error) && error.name === "SerializationError";
      if (items.length === 1 || !isTooLarge) throw error;
    }
  }
  const half = Math.ceil(items.length / 2);
  await handOverAll(step, into, items.slice(0, half));
  await handOverAll(step, into, items.slice(half));
}
