// @ts-check

/** @param {number} value */
export const number = (value) => value.toLocaleString("en");

/** @param {number | null | undefined} share From 0 to 1. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  return `${value === 0 || value >= 10 ? Math.round(value) : value.toFixed(1)} %`;
}

/**
 * A duration in words: `2 h 29 min`.
 * @param {number} ms
 */
export function duration(ms) {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return withRest(minutes, "min", seconds % 60, "s");
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return withRest(hours, "h", minutes % 60, "min");
  return withRest(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** @param {number} value @param {string} unit @param {number} rest @param {string} restUnit */
function withRest(value, unit, rest, restUnit) {
  return rest === 0 ? `${value} ${unit}` : `${value} ${unit} ${rest} ${restUnit}`;
}

/** @param {string} iso @param {number} now */
export const ago = (iso, now) => {
  const ms = now - Date.parse(iso);
  if (ms < 1_000) return "now";
  return ms < 60_000 ? `${Math.floor(ms / 1_000)} s ago` : `${duration(ms)} ago`;
};

/** The time of day, local. @param {string | number} at */
export const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

/** Day and time, local: `22 Nov, 12:03`. @param {string | number} at */
export const dayAndTime = (at) =>
  new Date(at).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/**
 * When something will be, in words: `at 12:03 (in 21 h)`.
 * @param {string} iso @param {number} now
 */
export function until(iso, now) {
  const at = Date.parse(iso);
  const isToday = new Date(at).toDateString() === new Date(now).toDateString();
  const left = at - now;
  return `${isToday ? `at ${clock(at).slice(0, 5)}` : `on ${dayAndTime(at)}`} (${
    left > 0 ? `in ${duration(Math.ceil(left / 1_000) * 1_000)}` : `${duration(-left)} ago`
  })`;
}

/** @param {number} count @param {string} one @param {string} [many] */
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** @param {string} word */
export const capital = (word) => word.slice(0, 1).toUpperCase() + word.slice(1);

/**
 * A duration on an axis, as exact as its step: `59 min 40 s`.
 * @param {number} ms @param {number} step
 */
export function offset(ms, step) {
  if (step < 1_000) return ms < 1_000 ? `${Math.round(ms)} ms` : `${Number((ms / 1_000).toFixed(2))} s`;
  const parts = UNITS.map(([unit, size, more]) => /** @type {const} */ ([Math.floor(ms / size) % more, unit]));
  return parts.filter(([value]) => value > 0).map(([value, unit]) => `${value} ${unit}`).join(" ");
}

const UNITS = /** @type {const} */ ([
  ["d", 86_400_000, Infinity],
  ["h", 3_600_000, 24],
  ["min", 60_000, 60],
  ["s", 1_000, 60],
]);

/** @param {number} bytes */
export const size = (bytes) =>
  bytes < 1_000 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

/** A short form of an id: its end differs between runs of one moment. @param {string} id */
export const shortId = (id) => id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id;

/**
 * How many waits are open: `12`, or `50+` if there are more than the first page has. With `auth`, or above 1,000, the
 * service does not count them.
 *
 * @param {{ waits: unknown[], total: number | null, next: string | null }} firstPage
 */
export const countOfWaits = ({ waits, total, next }) =>
  total === null && next !== null ? `${waits.length}+` : number(total ?? waits.length);
