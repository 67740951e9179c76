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
 * @param {typeof get} [read] Always the same function.
 * @returns {{ data: any, error: any, reload: () => void }}
 */
export function useData(path, query = {}, everyMs = 10_000, read = get) {
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
    const readAgain = async () => {
      if (path === null || document.hidden) return;
      if (isReading) return void (isWanted = true);
      isReading = true;
      readAt = performance.now();
      clearTimeout(timer);
      const isAgain = isAsked; // the answer may be older than what was asked about
      isAsked = false;
      let delay = everyMs;
      try {
        const data = await read(path, query, stopped.signal);
        setState({ key, data, error: null });
      } catch (error) {
        if (stopped.signal.aborted) return;
        setState((last) => ({ key, data: last.key === key ? last.data : null, error }));
        delay = Math.min(everyMs, AFTER_ERROR_MS);
        if ([401, 403, 404].includes(/** @type {any} */ (error).status)) return; // asking again would not help
      } finally {
        isReading = false;
      }
      timer = setTimeout(readAgain, isWanted || isAgain ? SETTLED_MS : delay);
      isWanted = false;
    };
    reader.current.reload = () => {
      if (isReading) return void (isWanted = true);
      isAsked = true;
      clearTimeout(timer);
      timer = setTimeout(readAgain, Math.max(0, readAt + MIN_GAP_MS - performance.now()));
    };
    document.addEventListener("visibilitychange", readAgain);
    void readAgain();
    return () => {
      stopped.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", readAgain);
    };
  }, [key, everyMs]);
  const reload = useCallback(() => reader.current.reload(), []);
  return state.key === key ? { data: state.data, error: state.error, reload } : { data: null, error: null, reload };
}

const MAX_WAITS = 1_000;

/** Reads open waits, up to 1,000: where hooks decide about each of them, a part may have few. @type {typeof get} */
export async function getWaits(path, query, signal) {
  /** @type {any[]} */
  const waits = [];
  let part = { total: null, next: null };
  do {
    part = await get(path, { ...query, limit: MAX_WAITS / 2, cursor: part.next }, signal);
    waits.push(.../** @type {any} */ (part).waits);
  } while (part.next !== null && waits.length < MAX_WAITS);
  return { ...part, waits };
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
