// @ts-check
import { addressOf, post } from "../core/api.js";
import { STATUS } from "../core/changes.js";
import { ago, clock, dayAndTime, duration, number, plural, until } from "../core/format.js";
import { html } from "../core/html.js";
import { goTo, pageAt } from "../core/location.js";
import { options } from "../core/options.js";
import { follow } from "../core/stream.js";
import { useData, useNow } from "../core/use_data.js";
import { ActButton, Copy, Dialog, Guarded, Labels, Problem } from "../parts/basics.js";
import { Status } from "../parts/icons.js";
import { JsonPanel } from "../parts/json_view.js";
import { Children } from "../run/children.js";
import { CleanUp } from "../run/clean_up.js";
import { Inbox } from "../run/inbox.js";
import { FailureBanner, WhyBanner } from "../run/banner.js";
import { Logs, useLines } from "../run/logs.js";
import { Streams } from "../run/streams.js";
import { Timeline } from "../run/timeline.js";
import { useTimeline } from "../run/use_timeline.js";
import { useEffect, useState } from "../vendor/hooks.js";

const MAX_LIVE_LINES = 2_000;

/** The page of a run. @param {{ runId: string, onLive: (isLive: boolean) => void }} props */
export function RunPage({ runId, onLive }) {
  const { data: run, error, reload: reloadRun } = useData("run", { runId }, 30_000);
  const { data: explanation, reload: reloadWhy } = useData(run?.isTerminal ? null : "explain", { runId }, 5_000);
  const { data: waits, reload: reloadWaits } = useData("waits", { runId }, 30_000);
  const { timeline, error: timelineError, reload: reloadTimeline, readMore } = useTimeline(runId);
  const [running, setRunning] = useState(/** @type {Map<string, string>} */ (new Map()));
  const [lines, setLines] = useState(/** @type {any[]} */ ([]));
  const allLines = useLines(runId, lines);
  const [progress, setProgress] = useState(/** @type {any} */ (null));
  const [failed, setFailed] = useState(/** @type {any} */ (null));
  const [isParent, setParent] = useState(false);
  const { data: children, reload: reloadChildren } = useData(
    "children",
    { runId, limit: 10 },
    isParent && !run?.isTerminal ? 10_000 : 1e9,
  );
  useEffect(() => setParent(children?.children.length > 0), [children]);
  const { data: failures, reload: reloadFailures } = useData("failure", { runId }, 1e9);
  const [changes, setChanges] = useState(0);
  const reload = () => {
    setChanges((last) => last + 1);
    [reloadFailures, reloadRun, reloadWhy, reloadWaits, reloadTimeline, reloadChildren].forEach((each) => each());
  };
  useEffect(() => {
    setLines([]);
    setRunning(new Map());
    setProgress(null);
    const onEvent = (/** @type {any} */ event) => {
      if (event.type === "log:write") return setLines((last) => [...last.slice(-MAX_LIVE_LINES), event]);
      if (event.type === "run:progress") {
        if (event.of === "children") reloadChildren();
        return setProgress(event.progress);
      }
      if (event.type === "step:start") return setRunning((last) => new Map(last).set(event.stepName, event.timestamp));
      if (event.type === "run:delete") return goTo("#/runs");
      if (event.type.startsWith("step:")) {
        setRunning((last) => new Map([...last].filter(([name]) => name !== event.stepName)));
      } else if (STATUS[event.type] !== undefined) setRunning(new Map());
      reload();
    };
    return follow("subscribe", { runId }, { onEvent, onState: onLive });
  }, [runId]);
  if (run === null) {
    return html`
      <div class="stack tight">
        <p class="crumbs small"><a href="#/runs">Runs</a></p>
        <h1>Run</h1>
        <${Problem} error=${error} />
      </div>
    `;
  }
  return html`
    <div class="stack tight">
      <p
        class="crumbs small"><a href="#/runs">Runs</a><span aria-hidden="true">/</span><a href=${pageAt(
          `jobs/${run.jobName}`,
        )}>${run.jobName}</a></p>
      <div class="head">
        <div class="title">
          <h1>${run.jobName}</h1>
          <${Status} status=${run.held ? "held" : run.status}
            isPill=${true}>${statusText(
              run,
              waits,
            )}<//></div><${Actions} run=${run} executedAgain=${children?.executedAgain
              ? `${number(children.executedAgain)} of ${plural(children.total, "child", "children")}`
              : ""} reload=${reload} onError=${setFailed} /></div>
          <p class="small muted mono id">${run.id}<${Copy} text=${run.id} label="Copy the id" /></p></div>
        <${Problem} error=${failed} />
        <${Guarded} title="Why it is not running"><${WhyBanner} run=${run} explanation=${explanation} waits=${waits ??
          []} reload=${reload} onError=${setFailed} /><//>
        <${Guarded} title="Error"><${FailureBanner} run=${run} failures=${failures} timeline=${timeline} /><//>
        <${Guarded} title="Facts"><${Facts} run=${run} details=${failures
          ?.details} timeline=${timeline} explanation=${explanation} progress=${progress ??
          run.progress ?? null} /><//>
        ${isParent && children && html`
          <${Guarded} title="Children">
            <${Children} key=${runId} runId=${runId} first=${children} reload=${reload} />
            <//>
        `}
        ${run.endRunId && html`
          <${Guarded} title="Clean-up">
            <${CleanUp} key=${run.endRunId} runId=${run.endRunId} />
            <//>
        `}
        <${Guarded} title="Inbox"><${Inbox} key=${runId} run=${run} changes=${changes} onError=${setFailed} /><//>
        <${Guarded} title="Streams"><${Streams} key=${runId} run=${run} changes=${changes} /><//>
        <${Guarded} title="Timeline"><${Timeline} key=${run
          .id} timeline=${timeline} error=${timelineError} running=${running} readMore=${readMore} lines=${allLines ??
          []} isEnded=${run
          .isTerminal} /><//>
        <div class="cols">${allLines !== null &&
          html`
            <${Guarded} title="Logs">
              <${Logs} lines=${allLines} />
              <//>
          `}<div class="stack"><${Guarded} title="Input"><${JsonPanel} title="Input" value=${run
          .input} /><//><${Guarded} title="Output"><${JsonPanel} title="Output" value=${run
          .output} none=${run.status === "completed"
          ? undefined
          : run.isTerminal
          ? "None: the run has not completed."
          : "None until the run has completed."} /><//></div></div>
  `;
}

/** @param {any} run @param {any[] | null} waits */
function statusText(run, waits) {
  if (run.held) return "Held";
  const open = (waits ?? []).filter((wait) => wait.status === "pending" && wait.suspendedAt !== null);
  return run.status === "waiting" && open.length > 0 ? `Waiting for ${open[0].name}` : undefined;
}

/** @param {{ run: any, executedAgain: string, reload: () => void, onError: (error: any) => void }} props */
function Actions({ run, executedAgain, reload, onError }) {
  const [asked, ask] = useState("");
  const { id: runId } = run;
  const retrigger = (/** @type {string} */ from) => async () => {
    const { runId: newId } = await post("retrigger", { runId, from });
    goTo(pageAt(`runs/${newId}`));
  };
  const remove = async () => {
    await post("run", { runId }, undefined, "DELETE");
    goTo("#/runs");
  };
  const cancel = async () => {
    await post("cancel", { runId });
    reload();
  };
  const resume = async () => {
    await post("resume", { runId });
    reload();
  };
  const close = () => ask("");
  return html`
    <div
      class="push buttons">${executedAgain &&
        html`<span class="small muted">A retry executes ${executedAgain} again</span>`}${run.held &&
        html`<${ActButton} class="primary" act=${resume} onError=${onError}>Resume<//>`}${run.isTerminal &&
        run.status !== "completed" &&
        html`<${ActButton} class="primary" act=${
          retrigger("failure")
        } onError=${onError}>Retrigger from the failure<//>`}${run.isTerminal &&
        html`<${ActButton} act=${retrigger("start")} onError=${onError}>Run again<//>`}<${Copy} text=${curlOf(
          run,
        )} label="Copy as curl" words="Copy as curl" />${run.isTerminal
        ? html`<button class="danger" onClick=${() => ask("delete")}>Delete</button>`
        : html`<button class="danger" onClick=${() => ask("cancel")}>Cancel</button>`}</div>${asked === "cancel" &&
        html`
          <${Dialog} title="Cancel this run?" confirm="Cancel the run" isDanger=${true} onConfirm=${cancel}
            onClose=${close}>
            <p>A step that is running is aborted. Recorded steps stay.</p>
            <//>
        `}${asked === "delete" && html`
        <${Dialog} title="Delete this run?" confirm="Delete the run" isDanger=${true} onConfirm=${remove}
          onClose=${close}>
          <p>Its steps, waits and logs are deleted, too. This cannot be undone.</p>
          <//>
      `}
  `;
}

/** @param {any} run */
function curlOf({ jobName, input, labels }) {
  const body = JSON.stringify({ jobName, input, ...(Object.keys(labels).length > 0 ? { labels } : {}) });
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
  return `curl -X POST ${quote(addressOf("trigger"))} -H 'content-type: application/json' -d ${quote(body)}`;
}

/** @param {{ run: any, timeline: any, explanation: any, details: any, progress: any }} props */
function Facts({ run, timeline, explanation, details, progress }) {
  const now = useNow();
  const due = Date.parse(run.startAt ?? run.createdAt);
  const rows = timeline?.rows ?? [];
  const active = rows.reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + row.activeMs, 0);
  const recovered =
    rows.filter((/** @type {any} */ { kind, status }) => kind === "recovery" && status !== "held").length;
  const lastWorker = details?.leaseOwner ?? rows.findLast((/** @type {any} */ row) => row.workerId)?.workerId;
  const executing = explanation?.reasons.find((/** @type {any} */ reason) => reason.kind === "executing");
  const end = run.completedAt ? Date.parse(run.completedAt) : now;
  const isToday = new Date(run.createdAt).toDateString() === new Date(now).toDateString();
  const link = (/** @type {string} */ id, /** @type {string} */ words) =>
    html`<a href=${pageAt(`runs/${id}`)}>${words}</a>`;
  const relatives = [
    run.parentRunId && link(run.parentRunId, "parent run"),
    run.endOf && link(run.endOf, "cleans up after this run"),
    run.endRunId && link(run.endRunId, "its clean-up"),
    run.retriggerOf && link(run.retriggerOf, "retry of this run"),
    run.retriggeredAs && link(run.retriggeredAs, "its newest retry"),
  ].filter(Boolean);
  const trace = options.traceUrl?.replaceAll("{traceId}", run.id.replaceAll("-", "")).replaceAll("{runId}", run.id);
  /** @type {(readonly [string, any, any?] | false | undefined)[]} */
  const facts = [
    ["Triggered", isToday ? clock(run.createdAt) : dayAndTime(run.createdAt), ago(run.createdAt, now)],
    run.triggeredBy && ["Triggered by", run.triggeredBy],
    run.cancelledBy && ["Cancelled by", run.cancelledBy],
    run.startedAt && ["Start delay", duration(Math.max(0, Date.parse(run.startedAt) - due))],
    run.startedAt && ["Duration", duration(end - Date.parse(run.startedAt)), "pauses included"],
    [
      "Active time",
      duration(active),
      recovered === 0 ? "of recorded steps" : `interrupted ${plural(recovered, "time")}`,
    ],
    progress &&
    [
      "Progress",
      `${progress.current}${progress.total === undefined || progress.total === null ? "" : ` of ${progress.total}`}`,
      progress.message,
    ],
    executing?.worker && ["Worker", executing.worker.name ?? executing.worker.hostname ?? executing.worker.id],
    details?.leaseGeneration > 1 && ["Execution", `number ${details.leaseGeneration}`],
    !executing && lastWorker && ["Last worker", lastWorker],
    details?.idempotencyKey && ["Idempotency key", details.idempotencyKey],
    details?.concurrencyKey && ["Concurrency key", details.concurrencyKey],
    details?.fairnessKey && ["Fairness key", details.fairnessKey],
    run.scheduleName && ["Schedule", run.scheduleName, run.slotAt && dayAndTime(run.slotAt)],
    run.priority && ["Priority", run.priority],
    !run.startedAt && run.startBy &&
    ["Starts within", dayAndTime(run.startBy), `else it expires ${until(run.startBy, now)}`],
    run.finishBy && ["Deadline", dayAndTime(run.finishBy), run.isTerminal ? "" : until(run.finishBy, now)],
    Object.keys(run.labels).length > 0 && ["Labels", html`<${Labels} labels=${run.labels} />`],
    relatives.length > 0 && ["Related", relatives.map((each) => html`<div>${each}</div>`)],
    trace && ["Trace", html`<a href=${trace} target="_blank" rel="noreferrer noopener">Open the trace</a>`],
  ];
  return html`<dl class="panel facts">${
    facts.filter((fact) => Array.isArray(fact)).map(([name, value, more]) =>
      html`
        <div key=${name}>
          <dt>${name}</dt>
          <dd>${value}${more && html`<small>${more}</small>`}</dd>
        </div>
      `
    )
  }</dl>`;
}
