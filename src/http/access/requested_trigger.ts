import type { TriggerOptions } from "../../engine/triggers/new_run.ts";
import { decode } from "../../values/json.ts";
import type { NewRun } from "../../store/new_run.ts";
import { withoutUndefined } from "../without_undefined.ts";
import type { RequestedTrigger } from "./auth_hooks.ts";

/** What the hook `onTrigger` is shown of a trigger. */
export function toRequested(run: NewRun, options: TriggerOptions): RequestedTrigger {
  const { startAt, delay, priority, startWithin, finishWithin } = options;
  const { jobName, labels, idempotencyKey, concurrencyKey, coalesce } = run;
  return {
    jobName,
    input: decode(run.payload) ?? null,
    parsed: decode(run.input) ?? null,
    labels,
    ...(idempotencyKey === null ? {} : { idempotencyKey }),
    ...(concurrencyKey === null ? {} : { concurrencyKey }),
    ...(coalesce === null ? {} : { coalesce }),
    ...withoutUndefined({ startAt: startAt?.toString(), delay, priority, startWithin, finishWithin }),
  };
}
