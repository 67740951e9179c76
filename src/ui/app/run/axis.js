// @ts-check
import { offset } from "../core/format.js";
import { nice } from "../parts/charts.js";

/**
 * @typedef {{ from: number, to: number, isFold: boolean, at: number, width: number }} Part
 * @typedef {{ x: (at: number) => number, folds: Part[], ticks: { x: number, words: string }[] }} Axis
 */

const MIN_FOLD_MS = 2_000;
const MIN_FOLD_SHARE = 0.6; // of all work
const FOLD_WIDTH = 0.12;
const MAX_FOLDED = 0.4;
const TICK_PX = 130;
const LABEL_PX = 64;

/**
 * Where instants are on the axis, from 0 to 1. It is linear where something is executed; a long gap is folded to a fixed
 * width.
 *
 * @param {readonly { from: number, to: number }[]} busy When something was executed.
 * @param {number} from @param {number} to @param {boolean} isFolding @param {number} px The width of the axis.
 * @returns {Axis}
 */
export function makeAxis(busy, from, to, isFolding, px) {
  const work = merge([{ from, to: from }, ...busy, { from: to, to }]);
  const total = work.reduce((sum, part) => sum + part.to - part.from, 0);
  /** @type {Part[]} */
  const parts = [];
  for (const [n, { from: start, to: end }] of work.entries()) {
    const last = work[n - 1];
    if (last !== undefined) {
      const isFold = isFolding && start - last.to > Math.max(MIN_FOLD_MS, total * MIN_FOLD_SHARE);
      parts.push({ from: last.to, to: start, isFold, at: 0, width: 0 });
    }
    parts.push({ from: start, to: end, isFold: false, at: 0, width: 0 });
  }
  const folds = parts.filter((part) => part.isFold);
  const foldWidth = Math.min(FOLD_WIDTH, MAX_FOLDED / Math.max(1, folds.length));
  const linear = parts.reduce((sum, part) => sum + (part.isFold ? 0 : part.to - part.from), 0) || 1;
  let at = 0;
  for (const part of parts) {
    part.at = at;
    part.width = part.isFold ? foldWidth : (1 - folds.length * foldWidth) * (part.to - part.from) / linear;
    at += part.width;
  }
  const x = (/** @type {number} */ instant) => {
    const part = parts.find((each) => instant <= each.to) ?? parts[parts.length - 1];
    if (part === undefined || part.to === part.from) return part?.at ?? 0;
    return part.at + Math.max(0, Math.min(1, (instant - part.from) / (part.to - part.from))) * part.width;
  };
  return { x, folds, ticks: ticksOf(parts, { from, linear, x, px }) };
}

/** @param {readonly { from: number, to: number }[]} spans */
function merge(spans) {
  /** @type {{ from: number, to: number }[]} */
  const merged = [];
  for (const { from, to } of spans.toSorted((one, other) => one.from - other.from)) {
    const last = merged.at(-1);
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to);
    else merged.push({ from, to });
  }
  return merged;
}

/**
 * @param {readonly Part[]} parts
 * @param {{ from: number, linear: number, x: (at: number) => number, px: number }} axis
 */
function ticksOf(parts, { from, linear, x, px }) {
  const step = stepOf(linear / Math.max(2, Math.min(7, px / TICK_PX)));
  /** @type {{ x: number, words: string }[]} */
  const ticks = [];
  const margin = LABEL_PX / px;
  const isFree = (/** @type {number} */ place) =>
    ticks.every((tick) => Math.abs(tick.x - place) >= margin) && place < 1 - margin / 2 &&
    parts.every((part) =>
      !part.isFold || place < part.at - margin * 0.7 || place > part.at + part.width + margin * 0.7
    );
  if (isFree(0)) ticks.push({ x: 0, words: "" });
  for (const part of parts) {
    if (part.isFold) continue;
    for (let at = Math.ceil((part.from - from) / step) * step + from; at <= part.to; at += step) {
      const words = `+${offset(Math.round(at - from), step)}`;
      if (isFree(x(at)) && ticks.every((tick) => tick.words !== words)) ticks.push({ x: x(at), words });
    }
  }
  return ticks;
}

const SECOND = 1_000;
const [MINUTE, HOUR, DAY] = [60 * SECOND, 3_600 * SECOND, 86_400 * SECOND];
const STEPS = [1, 2, 5, 10, 15, 30].flatMap((n) => [n * SECOND, n * MINUTE]).concat(
  [1, 2, 3, 6, 12].map((n) => n * HOUR),
)
  .sort((one, other) => one - other);

/** The next step that a clock has. @param {number} ms */
const stepOf = (ms) => ms < SECOND ? nice(ms) : STEPS.find((step) => step >= ms) ?? nice(ms / DAY) * DAY;
