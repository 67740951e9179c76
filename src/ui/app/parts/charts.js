// @ts-check
import { clock, dayAndTime, duration, number } from "../core/format.js";
import { html } from "../core/html.js";

/** @param {readonly number[]} values @param {number} max @param {number} w @param {number} h @param {boolean} isArea */
function path(values, max, w, h, isArea = false) {
  const last = Math.max(1, values.length - 1);
  const points = values.map((v, i) => `${(i * w / last).toFixed(2)} ${(h - v / max * h).toFixed(2)}`);
  return `M${points.join("L")}${isArea ? `L${w} ${h}L0 ${h}Z` : ""}`;
}

/** Slots in which nothing was recorded, like the one before. @param {readonly (number | null)[]} sampled */
export function filled(sampled) {
  let last = 0;
  return sampled.map((value) => last = value ?? last);
}

/** A line without axes. @param {{ values: readonly number[], status: string }} props */
export function Spark({ values, status }) {
  const max = Math.max(1, ...values) * 1.15;
  return html`
    <svg class="spark" data-s=${status} viewBox="0 0 120 36" preserveAspectRatio="none" aria-hidden="true">
      <path d=${path(values, max, 120, 36, true)} class="area" />
      <path d=${path(values, max, 120, 36)} class="line" />
    </svg>
  `;
}

/** Small bars of what ended. @param {{ done: number[], failed: number[] }} props */
export function MiniBars({ done, failed }) {
  const max = Math.max(1, ...done.map((value, i) => value + (failed[i] ?? 0)));
  const w = 112 / done.length;
  return html`<svg class="bars" viewBox="0 0 112 22" preserveAspectRatio="none" aria-hidden="true">${
    done.map((value, i) => {
      const f = failed[i] ? Math.max(2, (failed[i] ?? 0) / max * 20) : 0;
      const h = Math.max(1, (value + (failed[i] ?? 0)) / max * 20);
      return html`
        <g>
          <rect x=${i * w} width=${w - 1} y=${22 - h} height=${Math.max(0, h - f)} class=${value ? "done" : "none"} />
          <rect x=${i * w} width=${w - 1} y=${22 - f} height=${f} class="fail" />
        </g>
      `;
    })
  }</svg>`;
}

/** The next round number. @param {number} value */
export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= value) ?? 1;
}

/**
 * A chart with its axes.
 * @param {{ title: string, legend: any, words: string, top: string, middle: string, from: string, stepMs: number, slots: number, children?: any }} props
 */
function Chart({ title, legend, words, top, middle, from, stepMs, slots, children }) {
  const isLong = stepMs * slots > 86_400_000;
  const start = Date.parse(from);
  const labels = [0, 1, 2, 3].map((k) => start + k * stepMs * slots / 4);
  return html`
    <figure class="panel chart">
      <div class="head">
        <h2>${title}</h2>
        <div class="legend tiny muted">${legend}</div>
      </div>
      <div class="plot">
        <svg viewBox="0 0 600 136" preserveAspectRatio="none" role="img" aria-label=${words}>${[0, 68, 136].map((y) =>
          html`<line x1="0" x2="600" y1=${y} y2=${y} class="grid" />`
        )}${children}</svg>
        <div class="y tiny muted" aria-hidden="true"><span>${top}</span><span>${middle}</span><span>0</span></div>
        <div class="x tiny muted" aria-hidden="true">${labels.map((at) =>
          html`<span>${isLong ? dayAndTime(at) : clock(at).slice(0, 5)}</span>`
        )}<span>now</span></div>
      </div>
    </figure>
  `;
}

/** Runs that ended, by slot. @param {{ series: any }} props */
export function EndedChart({ series: { completed, failed, from, stepMs } }) {
  const perMinute = stepMs / 60_000;
  const top = nice(
    Math.max(...completed.map((/** @type {number} */ v, /** @type {number} */ i) => v + failed[i])) / perMinute,
  );
  const k = 136 / (top * perMinute);
  const w = 600 / completed.length;
  const sum = (/** @type {number[]} */ values) => values.reduce((one, other) => one + other, 0);
  const legend = html`<span data-s="completed"><i />Completed</span><span data-s="failed"><i />Failed</span>`;
  const words = `Runs that ended: ${number(sum(completed))} completed, ${number(sum(failed))} failed`;
  return html`
    <${Chart} title="Ended per minute" legend=${legend} words=${words} top=${number(top)} middle=${number(top / 2)}
      from=${from} stepMs=${stepMs} slots=${completed.length}>${completed.map((
        /** @type {number} */ value,
        /** @type {number} */ i,
      ) =>
        html`
          <g>
            <rect x=${i * w + .75} width=${w - 1.5} y=${136 - (value + failed[i]) * k} height=${value *
              k} class="done" />
            <rect x=${i * w + .75} width=${w - 1.5} y=${136 - failed[i] * k} height=${failed[i] * k} class="fail" />
          </g>
        `
      )}<//>
  `;
}

/** Two percentiles of a duration. @param {{ title: string, series: any, of: { p50: (number | null)[], p95: (number | null)[] } }} props */
export function LatencyChart({ title, series, of }) {
  const [p50, p95] = [filled(of.p50), filled(of.p95)];
  const top = nice(Math.max(10, ...p95));
  const legend =
    html`<span data-s="running"><i class="line" />median</span><span data-s="running"><i class="dash" />95th percentile</span>`;
  const words = `${title}: median ${duration(p50.at(-1) ?? 0)}, 95 percent within ${duration(p95.at(-1) ?? 0)}`;
  return html`
    <${Chart} title=${title} legend=${legend} words=${words} top=${duration(top)} middle=${duration(
      top / 2,
    )} from=${series.from}
      stepMs=${series.stepMs} slots=${p50.length}>
      <g data-s="running">
        <path d=${path(p95, top, 600, 136, true)} class="area" />
        <path d=${path(p95, top, 600, 136)} class="line dashed" />
        <path d=${path(p50, top, 600, 136)} class="line" />
      </g>
      <//>
  `;
}
