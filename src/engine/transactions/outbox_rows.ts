import { Mistake } from "../../execution/transactions.ts";
import type { NewOutboxRow } from "../../model/effects.ts";
import { type TraceContext, traceOf } from "../../model/origin.ts";
import type { TriggerOptions } from "../triggers/new_run.ts";
import type { Requests } from "./requests.ts";

/** The options of a row. */
export type RowOptions = TriggerOptions & {
  /** What a plugin has set at the trigger, so that none is asked again; left out: none was asked. */
  trace?: TraceContext | null;
};

/** The requests of a function as rows of the outbox: as they were given, with what the run inherits. */
export function toRows(
  { runs, signals, signalsBy, options, isTraced }: Requests,
  storeId: string | null,
  at: number,
): NewOutboxRow[] {
  return [
    ...runs.map(({ id, jobName, payload, labels, flow: { priority, fairnessKey }, trace }, index): NewOutboxRow => {
      const inherited = { labels, priority, ...(fairnessKey === null ? {} : { fairnessKey }) };
      const given: RowOptions = { ...options[index], ...inherited, ...(isTraced ? { trace: traceOf(trace) } : {}) };
      if (given.coalesce !== undefined) throw new Mistake(new TypeError("coalesce needs a data source that is joined"));
      return { id, kind: "trigger", name: jobName, value: payload, options: JSON.stringify(given), storeId, at };
    }),
    ...signals.map(({ waitId, signal: { signalId, payload } }, index): NewOutboxRow => {
      const by = signalsBy[index] ?? null;
      const given = by === null ? null : JSON.stringify({ by });
      return {
        id: signalId,
        kind: "signal",
        name: waitId,
        value: JSON.stringify(payload),
        options: given,
        storeId,
        at,
      };
    }),
  ];
}
