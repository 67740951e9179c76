// @ts-check
import { get } from "../core/api.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/hooks.js";

const PART = 200;
const LARGE_PART = 1_000;
const MIN_GAP_MS = 1_000;

/**
 * The timeline of a run, in parts. `reload()` reads the parts that may have changed, at most once a second.
 *
 * @param {string} runId
 * @returns {{ timeline: any, error: any, reload: () => void, readMore: (isLarge: boolean) => Promise<void> }}
 */
export function useTimeline(runId) {
  const parts = useRef(/** @type {any[]} */ ([]));
  const [timeline, setTimeline] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const state = useRef({ runId: "", isReading: false, isWanted: false });

  const show = () => {
    const [first] = parts.current;
    const last = parts.current.at(-1);
    if (first === undefined) return;
    const rows = parts.current.flatMap((part) => part.rows);
    setTimeline({ ...last, rows });
  };
  const readPart = async (/** @type {number} */ at, /** @type {string | null} */ from, /** @type {number} */ limit) => {
    const part = await get("timeline", { runId, from, limit });
    if (state.current.runId === runId) parts.current[at] = { ...part, start: from, limit };
  };
  const read = useCallback(async () => {
    if (state.current.isReading) return void (state.current.isWanted = true);
    state.current.isReading = true;
    try {
      // Rows that have ended never change: read from the first part that has another one.
      const open = parts.current.findIndex((part) => part.rows.some((/** @type {any} */ row) => row.endedAt === null));
      const begin = Math.max(0, open === -1 ? parts.current.length - 1 : open);
      for (let at = begin; at < Math.max(1, parts.current.length); at++) {
        await readPart(at, parts.current[at]?.start ?? null, parts.current[at]?.limit ?? PART);
      }
      show();
      setError(null);
    } catch (thrown) {
      setError(thrown);
    }
    setTimeout(() => {
      state.current.isReading = false;
      if (state.current.isWanted) void read();
      state.current.isWanted = false;
    }, MIN_GAP_MS);
  }, [runId]);
  const readMore = useCallback(async (/** @type {boolean} */ isLarge) => {
    const last = parts.current.at(-1);
    if (!last?.next) return;
    await readPart(parts.current.length, last.next, isLarge ? LARGE_PART : PART);
    show();
  }, [runId]);
  useEffect(() => {
    parts.current = [];
    state.current = { runId, isReading: false, isWanted: false };
    setTimeline(null);
    void read();
    return () => void (state.current.runId = "");
  }, [runId]);
  return { timeline, error, reload: read, readMore };
}
