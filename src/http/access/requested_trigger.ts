import type { TriggerOptions } from "../../engine/triggers/new_run.ts";
import type { NewRun } from "../../store/new_run.ts";
import { withoutUndefined } from "../without_undefined.ts";
import type { RequestedTrigger } from "./auth_hooks.ts";
import { withLazyValues } from "./seen_run.ts";

/** What the hook `onTrigger` is shown of a trigger, frozen. */
export function toRequested(run: NewRun, options: TriggerOptions): RequestedTrigger {
  const { startAt, delay, priority, startWithin, finishWithin } = options;
  const { jobName, labels, idempotencyKey, concurrencyKey, coalesce } = run;
  const requested = {
    jobName,
    labels,
    ...(idempotencyKey === null ? {} : { idempotencyKey }),
    ...(concurrencyKey === null ? {} : { concurrencyKey }),
    ...(coalesce === null ? {} : { coalesce }),
    ...withoutUndefined({ startAt: startAt?.toString(), delay, priority, startWithin, finishWithin }),
  };
  // The values complete its fields.
  return withLazyValues(requested, { input: run.payload, parsed: run.input }) as RequestedTrigger;
}
