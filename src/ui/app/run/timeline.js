// @ts-check
import { pageAt } from "../core/location.js";
import { capital, clock, dayAndTime, duration, plural, until } from "../core/format.js";
import { html } from "../core/html.js";
import { useData, useNow } from "../core/use_data.js";
import { Panel, Problem, Segments } from "../parts/basics.js";
import { Icon, Shape } from "../parts/icons.js";
import { Json } from "../parts/json_view.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
import { makeAxis } from "./axis.js";
import { Lines } from "./logs.js";

const DRAWN = 200;
const CHOICES = /** @type {const} */ ([["all", "All"], ["open", "Not completed"]]);

/**
 * What a run has done, as bars over time.
 * @param {{ timeline: any, error: any, running: Map<string, string>, readMore: (isLarge: boolean) => Promise<void>, lines: any[], isEnded: boolean }} props
 */
export function Timeline({ timeline, error, running, readMore, lines, isEnded }) {
  const [which, setWhich] = useState("all");
  const [isFolding, setFolding] = useState(true);
  const [open, setOpen] = useState(/** @type {string | null} */ (null));
  const [drawn, setDrawn] = useState(DRAWN);
  const [px, setPx] = useState(700);
  const lane = useRef(/** @type {any} */ (null));
  const now = useNow(isEnded ? 60_000 : 1_000);
  const rows = useMemo(() => inOrder(timeline?.rows ?? [], timeline?.from), [timeline]);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setPx(Math.max(200, entry?.contentRect.width ?? 0)));
    if (lane.current) observer.observe(lane.current);
    return () => observer.disconnect();
  }, [timeline === null]);
  // The filter is about all rows, so it reads all of them.
  useEffect(() => {
    if (which === "open" && timeline?.next) void readMore(true);
  }, [which, timeline?.next]);
  const to = timeline?.to === null ? now : Date.parse(timeline?.to ?? 0);
  const from = Date.parse(timeline?.from ?? 0);
  const live = [...running].filter(([name]) => !rows.some((/** @type {any} */ row) => row.name === name && row.endedAt))
    .map(([name, at]) => runningRow(name, at));
  const axis = useMemo(() => {
    const spans = [...rows, ...live].filter((row) => !row.isCopied).flatMap((row) => row.spans).filter((span) =>
      span.kind === "active"
    )
      .map((span) => ({ from: Date.parse(span.from), to: span.to === null ? to : Date.parse(span.to) }));
    return makeAxis(spans, from, Math.max(to, from + 1), isFolding, px);
  }, [timeline, isFolding, px, to, live.length]);
  if (timeline === null) {
    return html`
      <${Panel} title="Timeline">
        <${Problem} error=${error} />
        <p class="pad muted" aria-busy=${error === null}>${error === null ? "Reading…" : ""}</p>
        <//>
    `;
  }
  const matching = [...rows, ...live].filter((row) => which === "all" || row.kind === "recovery" || !isDone(row));
  const shown = matching.slice(0, drawn);
  const isMore = timeline.next !== null || matching.length > drawn;
  const more = async () => {
    setDrawn(drawn + DRAWN);
    if (matching.length <= drawn + DRAWN) await readMore(false);
  };
  const actions = html`<${Segments} label="Rows" choices=${CHOICES} value=${which} onChange=${setWhich} />${
    (axis.folds.length > 0 || !isFolding) &&
    html`<button class="quiet" aria-pressed=${String(!isFolding)} onClick=${() =>
      setFolding(!isFolding)}>Linear scale</button>`
  }`;
  return html`
    <${Panel} title="Timeline" aside=${summaryOf(timeline)} actions=${actions}>
      <div
        class="tl"><div class="axis" aria-hidden="true"><span /><div class="lane" ref=${lane}>${axis.ticks.map((tick) =>
          html`<span style=${{ left: pc(tick.x) }}>${tick.words || clock(from)}</span>`
        )}${axis.folds.map((fold) =>
          html`<span class="fold-label" style=${{ left: pc(fold.at + fold.width / 2) }}>${
            duration(fold.to - fold.from)
          }</span>`
        )}</div><span /></div>
        <div class="folds" aria-hidden="true">${axis.folds.map((fold) =>
          html`<div class="fold" style=${{ left: pc(fold.at), width: pc(fold.width) }} />`
        )}</div>
        <ol>${shown.map((row, n) => {
          const key = `${row.kind} ${row.name} ${row.startedAt}`;
          return html`
            <${Row} key=${key} row=${row} axis=${axis} to=${to} now=${now} id=${`row-${n}`}
              runId=${timeline.runId} lines=${lines}
              isOpen=${open === key} toggle=${() => setOpen(open === key ? null : key)} />
          `;
        })}</ol>${isMore && html`
          <div
            class="pages small"><span class="muted">${plural(shown.length, "row")} of ${timeline.total +
              live
                .length}</span><div class="buttons push"><button onClick=${more}>Show more</button></div></div>
        `}</div>
      <//>
  `;
}

/** @param {{ row: any, axis: import("./axis.js").Axis, to: number, now: number, id: string, runId: string, lines: any[], isOpen: boolean, toggle: () => void }} props */
function Row({ row, axis, to, now, id, runId, lines, isOpen, toggle }) {
  if (row.kind === "recovery") {
    return html`
      <li>
        <p class="note"><${Icon} name="alert" />${clock(row.endedAt)} ${recoveryOf(row)}</p>
      </li>
    `;
  }
  const status = statusOf(row);
  const took = tookOf(row, to);
  const attempts = row.spans.filter((/** @type {any} */ span) => span.kind === "active").length;
  const hint = row.isCopied
    ? "copied"
    : attempts > 1
    ? `${attempts} attempts`
    : row.kind === "child"
    ? "child run"
    : row.endedAt === null && row.deadlineAt
    ? `until ${dayAndTime(row.deadlineAt)}`
    : row.kind === "sleep" || row.kind === "receive"
    ? row.kind
    : "";
  return html`
    <li
      data-s=${status}
      class=${row.isCopied ? "copied" : ""}><button class="row" data-row data-failed=${status === "failed"
        ? ""
        : undefined} aria-expanded=${String(isOpen)} aria-controls=${id} onClick=${toggle}>
        <span class="label"><${Shape} status=${status} /><span class="name">${row.kind === "queued"
          ? "Queued"
          : row.name}</span><span class="sr">, ${wordOf(row)},</span>${hint &&
          html`<span class="hint tiny muted">${hint}</span>`}</span>
        <span class="lane" aria-hidden="true">${(row.isCopied ? [] : row.spans).map((/** @type {any} */ span) => {
          const [left, right] = [Date.parse(span.from), span.to === null ? to : Date.parse(span.to)].map(axis.x);
          const style = { left: pc(left ?? 0), width: pc(Math.max(0, (right ?? 0) - (left ?? 0))) };
          return html`<i class=${`bar ${span.kind}${span.to === null ? " open" : ""}`} data-s=${
            spanStatus(span, status)
          } style=${style} />`;
        })}</span><span class="took">${took}</span></button>${isOpen && html`
          <div class="more" id=${id}>
            <${Details} row=${row} to=${to} now=${now} runId=${runId} lines=${lines} />
          </div>
        `}</li>
  `;
}

/** @param {{ row: any, to: number, now: number, runId: string, lines: any[] }} props */
function Details({ row, to, now, runId, lines }) {
  const { data: steps } = useData(row.kind === "step" && row.status === "completed" ? "steps" : null, { runId }, 1e9);
  const step = steps?.find((/** @type {any} */ each) => each.name === row.name);
  const own = lines.filter((line) => line.stepName === row.name);
  const spans = row.spans.map((/** @type {any} */ span) => {
    const took = duration((span.to === null ? to : Date.parse(span.to)) - Date.parse(span.from));
    const words = {
      queued: "in the queue",
      active: span.attempt === undefined ? "running" : `attempt ${span.attempt}`,
      interrupted: "interrupted",
      "retry-delay": "delay before the next attempt",
      paused: "paused",
    }[/** @type {"queued"} */ (span.kind)];
    return html`
      <li
        data-s=${spanStatus(span, statusOf(row))}><span class="mono muted">${clock(
          span.from,
        )}</span><span class="word">${words}</span><span class="mono">${span.error ??
          ""}</span><span class="muted">${took}</span></li>
    `;
  });
  return html`
    <p class="small muted">${capital(wordOf(row))}${row.signalledBy ? ` by ${row.signalledBy}` : ""}${row.isCopied
      ? " in the run of which this is a retry"
      : ""}${row.deadlineAt && row.endedAt === null
      ? `, ends ${until(row.deadlineAt, now)}`
      : ""}${row.childRunId !== undefined && html`
      · <a href=${pageAt("runs", { parentRunId: runId })}>See the children</a>
    `}</p>
    <ol class="attempts">${spans}</ol>${step &&
      html`<${Json} value=${step.output} label=${`Result of ${row.name}`} />`}${own.length > 0 && html`
      <div class="logs" role="group" tabindex="0" aria-label=${`Log lines of ${row.name}`}>
        <${Lines} lines=${own} />
      </div>
    `}
  `;
}

/**
 * Rows in the order in which things happened. What a retry has copied happened before it was triggered.
 * @param {any[]} rows @param {string} from
 */
function inOrder(rows, from) {
  const marked = rows.map((row) => ({ ...row, isCopied: row.endedAt !== null && row.endedAt < from }));
  return marked.sort((one, other) => one.startedAt < other.startedAt ? -1 : one.startedAt > other.startedAt ? 1 : 0);
}

/** @param {string} name @param {string} at */
const runningRow = (name, at) => ({
  kind: "step",
  name,
  status: "running",
  startedAt: at,
  endedAt: null,
  activeMs: 0,
  spans: [{ kind: "active", status: "pending", from: at, to: null }],
});

/** @param {number} share */
const pc = (share) => `${(share * 100).toFixed(3)}%`;

/** @param {any} row */
const isDone = (row) => row.endedAt !== null && ["completed", "signal"].includes(row.status);

/** The status whose shape and colour a row has. @param {any} row */
function statusOf({ kind, status }) {
  if (kind === "queued") return "pending";
  if (status === "pending") return kind === "sleep" ? "sleeping" : "waiting";
  return ({ signal: "completed", timeout: "failed", closed: "cancelled" })[/** @type {"signal"} */ (status)] ?? status;
}

/** @param {any} span @param {string} status */
function spanStatus(span, status) {
  if (span.kind === "queued") return "pending";
  if (span.kind === "paused") return "waiting";
  if (span.kind === "retry-delay") return "retrying";
  if (span.kind === "interrupted") return "cancelled";
  return span.status === "pending"
    ? "running"
    : span.status === "failed"
    ? "failed"
    : status === "retrying"
    ? "failed"
    : status;
}

/** @param {any} row */
function wordOf({ kind, status }) {
  if (kind === "wait" && status === "pending") return "waits for a signal";
  if (kind === "receive") {
    return status === "pending" ? "waits for a message" : status === "completed" ? "received" : "timed out";
  }
  if (kind === "sleep") return status === "pending" ? "sleeps" : "slept";
  if (kind === "child" && status === "pending") return "waits for child runs";
  if (status === "signal") return "was signalled";
  if (status === "timeout") return "timed out";
  return status === "pending" ? "waits" : status;
}

/** @param {any} row @param {number} to */
function tookOf(row, to) {
  const all = (row.endedAt === null ? to : Date.parse(row.endedAt)) - Date.parse(row.startedAt);
  return duration(row.kind === "step" && row.activeMs > 0 ? row.activeMs : all);
}

/** @param {any} row */
function recoveryOf(row) {
  const worker = row.workerId === undefined ? "A worker" : `Worker ${row.workerId}`;
  if (row.status === "lost") return `${worker} was lost: its lease ended without a result. Recorded steps are kept.`;
  if (row.status === "held") return `${worker} could not go on with the code that it has: the run is held.`;
  return `${worker} stopped and released the run. Recorded steps are kept.`;
}

/** @param {any} timeline */
function summaryOf({ rows, next, total }) {
  if (next !== null) return plural(total, "row");
  const count = (/** @type {string[]} */ ...kinds) =>
    rows.filter((/** @type {any} */ row) => kinds.includes(row.kind)).length;
  return [
    plural(count("step"), "step"),
    count("wait") > 0 && plural(count("wait"), "wait"),
    count("receive") > 0 && plural(count("receive"), "receive"),
    count("sleep") > 0 && plural(count("sleep"), "sleep"),
    count("child") > 0 && plural(count("child"), "call of children", "calls of children"),
  ].filter(Boolean).join(", ");
}
