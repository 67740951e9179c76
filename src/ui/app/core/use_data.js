// @ts-check
import { useCallback, useEffect, useRef, useState } from "../vendor/hooks.js";
import { get } from "./api.js";

/**
 * Data of a route, read again after `everyMs` and whenever `reload()` is called, but never twice at once. Nothing is read
 * while the page is hidden. `path` is `null`: nothing is read.
 *
 * @param {string | null} path
 * @param {Record<string, unknown>} [query]
 * @param {number} [everyMs]
 * @returns {{ data: any, error: any, reload: () => void }}
 */
export function useData(path, query = {}, everyMs = 10_000) {
  const key = JSON.stringify([path, query]);
  const [state, setState] = useState(
    /** @type {{ key: string, data: any, error: any }} */ ({ key, data: null, error: null }),
  );
  const reader = useRef({ reload: () => {} });
  useEffect(() => {
    const stopped = new AbortController();
    let isReading = false;
    let isWanted = false;
    let isAsked = false;
    let readAt = -MIN_GAP_MS;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const read = async () => {
      if (path === null || document.hidden) return;
      if (isReading) return void (isWanted = true);
      isReading = true;
      readAt = performance.now();
      clearTimeout(timer);
      const isAgain = isAsked; // the answer may be older than what was asked about
      isAsked = false;
      let delay = everyMs;
      try {
        const data = await get(path, query, stopped.signal);
        setState({ key, data, error: null });
      } catch (error) {
        if (stopped.signal.aborted) return;
        setState((last) => ({ key, data: last.key === key ? last.data : null, error }));
        delay = Math.min(everyMs, AFTER_ERROR_MS);
        if ([401, 403, 404].includes(/** @type {any} */ (error).status)) return; // asking again would not help
      } finally {
        isReading = false;
      }
      timer = setTimeout(read, isWanted || isAgain ? SETTLED_MS : delay);
      isWanted = false;
    };
    reader.current.reload = () => {
      if (isReading) return void (isWanted = true);
      isAsked = true;
      clearTimeout(timer);
      timer = setTimeout(read, Math.max(0, readAt + MIN_GAP_MS - performance.now()));
    };
    document.addEventListener("visibilitychange", read);
    void read();
    return () => {
      stopped.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", read);
    };
  }, [key, everyMs]);
  const reload = useCallback(() => reader.current.reload(), []);
  return state.key === key ? { data: state.data, error: state.error, reload } : { data: null, error: null, reload };
}

// However many events ask for it, data is read once a second.
const MIN_GAP_MS = 1_000;
// The server shares numbers among callers for a second: read after that, they include what has changed.
const SETTLED_MS = 1_200;
const AFTER_ERROR_MS = 5_000;

/**
 * The current time, again every so many milliseconds.
 * @param {number} everyMs
 */
export function useNow(everyMs = 1_000) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
