// @ts-check
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { follow } from "./stream.js";

const DIGEST_MS = 1_000;

/**
 * Follows the runs of a filter: calls `onChange` when the stream opens, then with each run whose status has changed. A server that knows `digestMs`
 * sends one digest a second; one that does not sends each event.
 *
 * @param {Record<string, unknown>} query
 * @param {(change: { id: string | null, status: string | null }) => void} onChange `null`: any runs
 * may have changed.
 * @returns {boolean} Whether the stream is open.
 */
export function useChanges(query, onChange) {
  const [isOpen, setOpen] = useState(true);
  const listener = useRef(onChange);
  listener.current = onChange;
  const key = JSON.stringify(query);
  useEffect(() => {
    const onEvent = (/** @type {any} */ event) => {
      if (event.type === "runs:digest") {
        for (const { id, status } of event.runs ?? []) listener.current({ id, status });
        if ((event.runs ?? []).length < event.count) listener.current({ id: null, status: null });
        return;
      }
      const status = STATUS[event.type];
      if (status !== undefined) listener.current({ id: event.runId, status });
    };
    const onState = (/** @type {boolean} */ isNowOpen) => {
      setOpen(isNowOpen);
      if (isNowOpen) listener.current({ id: null, status: null }); // what happened before is in no event
    };
    return follow("runs/subscribe", { ...query, digestMs: DIGEST_MS }, { onEvent, onState });
  }, [key]);
  return isOpen;
}

/** The status that each event leads to. @type {Record<string, string>} */
export const STATUS = {
  "run:trigger": "pending",
  "run:leased": "leased",
  "run:start": "running",
  "run:waiting": "waiting",
  "run:complete": "completed",
  "run:fail": "failed",
  "run:cancel": "cancelled",
  "run:delete": "deleted",
};
