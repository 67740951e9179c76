import type { Run, RunText } from "../../model/run.ts";
import { parseValue, type StoredValue } from "../../values/json.ts";
import type { TriggerOptions } from "../../engine/triggers/new_run.ts";
import type { TriggerKeys } from "../../engine/triggers/trigger_flow.ts";
import { isPriority, PRIORITY_RULE } from "../../model/flow.ts";
import { toMs } from "../../values/duration.ts";
import { isName, NAME_RULE } from "../../values/name.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { NewRun } from "../../store/new_run.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import type { RequestedTrigger } from "./auth_hooks.ts";

/** A run for a hook, frozen. */
export function toSeenRun({ payload, output, ...run }: RunText): Readonly<Run> {
  return withLazyValues(run, { input: payload, payload, output }) as Readonly<Run>; // the values complete its fields
}

/** A frozen record with values that are parsed when they are read: most hooks read only labels. */
function withLazyValues<T extends object>(record: T, values: { readonly [name: string]: StoredValue }): T {
  const lazy = Object.entries(values).map(([name, value]): [string, PropertyDescriptor] => {
    let parsed: { value: unknown } | null = null;
    return [name, {
      enumerable: true,
      get: () => (parsed ??= deepFreeze({ value: parseValue(value) })).value,
    }];
  });
  return Object.freeze(Object.defineProperties({ ...deepFreeze(record) }, Object.fromEntries(lazy)));
}

/** What the hook `onTrigger` is shown of a trigger, frozen. */
export function toRequested(run: NewRun, options: TriggerOptions): RequestedTrigger {
  const { startAt, delay, priority, startWithin, finishWithin } = options;
  const { jobName, labels, idempotencyKey, idempotencyUntil, concurrencyKey, coalesce } = run;
  const requested = {
    jobName,
    labels,
    ...(idempotencyKey === null ? {} : { idempotencyKey }),
    ...(concurrencyKey === null ? {} : { concurrencyKey }),
    ...(coalesce === null ? {} : { coalesce }),
    ...withoutUndefined({ idempotencyUntil, startAt: startAt?.toString(), priority }),
    ...withoutUndefined({ delay: toMs(delay), startWithin: toMs(startWithin), finishWithin: toMs(finishWithin) }),
  };
  // The values complete its fields.
  return withLazyValues(requested, { input: run.payload, parsed: run.input }) as RequestedTrigger;
}

const KEYS: Record<keyof TriggerKeys, true> = { concurrencyKey: true, fairnessKey: true, priority: true };

/**
 * Reads what the hook `onTrigger` sets: nothing, unless it returns an object.
 *
 * @throws {TypeError} A field is unknown, or not valid.
 */
export function readTriggerKeys(returned: unknown): TriggerKeys {
  if (typeof returned !== "object" || returned === null) return {};
  checkOptionNames(returned, KEYS, "What auth.onTrigger returns");
  const { concurrencyKey, fairnessKey, priority }: TriggerKeys = returned;
  for (const [name, key] of Object.entries({ concurrencyKey, fairnessKey })) {
    if (key !== undefined && !isName(key)) throw new TypeError(`The ${name} that auth.onTrigger returns ${NAME_RULE}`);
  }
  if (priority !== undefined && !isPriority(priority)) {
    throw new TypeError(`The priority that auth.onTrigger returns ${PRIORITY_RULE}`);
  }
  return withoutUndefined({ concurrencyKey, fairnessKey, priority });
}

/** Freezes a value recursively, and returns it. For plain data without cycles. */
export function deepFreeze<T>(value: T): T {
  const pending: unknown[] = [value];
  while (pending.length > 0) {
    const next = pending.pop();
    if (typeof next !== "object" || next === null) continue;
    for (const inner of Object.values(Object.freeze(next))) pending.push(inner);
  }
  return value;
}
