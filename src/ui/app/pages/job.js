// @ts-check
import { post } from "../core/api.js";
import { ago, duration, number, percent, until } from "../core/format.js";
import { html } from "../core/html.js";
import { goTo, pageAt } from "../core/location.js";
import { useData, useNow } from "../core/use_data.js";
import { ActButton, Dialog, Guarded, Panel, Problem, Segments } from "../parts/basics.js";
import { EndedChart, LatencyChart } from "../parts/charts.js";
import { Status } from "../parts/icons.js";
import { JobState } from "../parts/job_table.js";
import { useEffect, useState } from "../vendor/hooks.js";
import { FailureRows } from "./overview.js";

const STATUSES = ["pending", "running", "waiting", "completed", "failed", "cancelled"];
const WINDOWS = /** @type {const} */ ([["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]]);

/** The page of a job. @param {{ jobName: string }} props */
export function JobPage({ jobName }) {
  const [window, setWindow] = useState("1h");
  const { data: jobs, error, reload } = useData("jobs", {}, 5_000);
  const { data: series } = useData("series", { window, jobName });
  const { data: failures } = useData("failures", { jobName });
  const { data: schedules } = useData("schedules", {}, 30_000);
  const [failed, setFailed] = useState(/** @type {any} */ (null));
  const [isPausing, setPausing] = useState(false);
  const [note, setNote] = useState("");
  const now = useNow();
  const job = jobs?.find((/** @type {any} */ each) => each.jobName === jobName);
  const crumbs = html`<p class="crumbs small"><a href="#/jobs">Jobs</a></p>`;
  if (job === undefined) {
    return html`<div class="stack tight">${crumbs}<h1>${jobName}</h1>${
      jobs !== null && html`<p class="muted">There is no such job.</p>`
    }<${Problem} error=${error} /></div>`;
  }
  const resume = async () => {
    await post("jobs/resume", { jobName });
    reload();
  };
  const pause = async () => {
    await post("jobs/pause", { jobName }, note.trim() === "" ? {} : { note: note.trim() });
    reload();
  };
  const rates = job.windows["1h"];
  const own = (schedules ?? []).filter((/** @type {any} */ schedule) => schedule.jobName === jobName);
  return html`
    <div
      class="stack tight">${crumbs}<div class="head"><div class="title"><h1>${jobName}</h1><${JobState} job=${job} /></div><div class="push buttons"><${Segments} label="Charts over" choices=${WINDOWS} value=${window} onChange=${setWindow} />${job
          .paused === null
        ? html`<button onClick=${() => setPausing(true)}>Pause</button>`
        : html`<${ActButton} class="primary" act=${resume} onError=${setFailed}>Resume<//>`}</div></div>${job.paused
        ?.note &&
        html`<p class="small muted">Paused ${ago(job.paused.since, now)}: ${job.paused.note}</p>`}</div><${Problem}
      error=${failed} />
        <section class="panel tiles six" aria-label="Counts">${STATUSES.map((status) =>
          html`
            <a class="tile plain" key=${status}
              href=${pageAt("runs", {
                jobName,
                status,
              })}><span><${Status} status=${status} /></span><span class="n">${number(
                status === "running" ? job.byStatus.running + job.byStatus.leased : job.byStatus[status],
              )}</span></a>
          `
        )}</section>
        <dl
      class="panel facts"><div><dt>Live workers</dt><dd>${job
        .liveWorkers}</dd></div>${(job.unread > 0 ||
          Object.keys(job.messages ?? {}).length > 0) &&
        html`
          <div>
            <dt>Unread messages</dt>
            <dd>${number(job.unread)}</dd>
          </div>
        `}<div><dt>Failed, last hour</dt><dd>${percent(
          rates.failureRate,
        )}</dd></div><div><dt>Duration p50 / p95</dt><dd>${rates.duration === null
        ? "–"
        : `${duration(rates.duration.p50)} / ${
          duration(rates.duration.p95)
        }`}</dd></div><div><dt>Step p50 / p95</dt><dd>${rates.stepDuration === null
        ? "–"
        : `${duration(rates.stepDuration.p50)} / ${
          duration(rates.stepDuration.p95)
        }`}</dd></div><div><dt>Limits</dt><dd>${limitsOf(job.limits)}</dd></div>${own.map((
          /** @type {any} */ schedule,
        ) =>
          html`
            <div key=${schedule.name}>
              <dt>Schedule ${schedule.name}</dt>
              <dd><a href="#/schedules">${schedule.cron}</a><small>${schedule.nextRuns[0] === undefined
                ? ""
                : `next ${until(schedule.nextRuns[0], now)}`}</small></dd>
            </div>
          `
        )}</dl>
        ${series !== null && html`
          <div class="charts">
            <${Guarded} title="Ended per minute">
              <${EndedChart} series=${series} />
              <//>
              <${Guarded} title="Duration">
                <${LatencyChart} title="Duration" series=${series} of=${series.duration} />
                <//>
                </div>
        `}
        <div
      class="cols">${failures !== null && html`
        <${Panel} title="Failures by error" actions=${html`<a class="small" href=${
          pageAt("runs", { jobName, status: "failed" })
        }>All failed runs</a>`}>
          <${Guarded} title="Failures">
            <${FailureRows} groups=${failures.groups} />
            <//>
            <//>
      `}<${Guarded} title="Trigger a run"><${TriggerForm} key=${jobName} jobName=${jobName} /><//></div>
        ${isPausing && html`
          <${Dialog} title=${`Pause ${jobName}?`} confirm="Pause the job" onConfirm=${pause}
            onClose=${() =>
              setPausing(
                false,
              )}><p>No run of it is claimed until it is resumed. Runs that are executed go on.</p><label class="field">Note, for others<input value=${note} maxlength="500" onInput=${(
              /** @type {any} */ event,
            ) => setNote(event.target.value)} /></label><//>
        `}
  `;
}

/** @param {any} limits */
function limitsOf(limits) {
  if (limits === null) return "not known here";
  const parts = [
    limits.concurrency !== null && `${limits.inUse} of ${limits.concurrency} at once`,
    limits.rate !== null && `${limits.rate.limit} per ${duration(limits.rate.period)}`,
  ].filter(Boolean);
  return parts.length === 0 ? "none" : parts.join(", ");
}

/** Triggers a run of the job; the input of its newest run is the example. @param {{ jobName: string }} props */
function TriggerForm({ jobName }) {
  const { data } = useData("runs", { jobName, limit: 1 }, 1e9);
  const [text, setText] = useState("{}");
  const [isTouched, touch] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (null));
  const example = data?.runs[0]?.input;
  useEffect(() => {
    if (!isTouched && example !== undefined) setText(JSON.stringify(example, null, 2));
  }, [data]);
  const trigger = async () => {
    const { runId } = await post("trigger", {}, { jobName, input: text.trim() === "" ? undefined : JSON.parse(text) });
    goTo(pageAt(`runs/${runId}`));
  };
  const onInput = (/** @type {any} */ event) => {
    touch(true);
    setText(event.target.value);
  };
  return html`
    <${Panel} title="Trigger a run" aside=${example === undefined ? "" : "as the newest run"}>
      <div
        class="pad stack tight"><label class="field">Input as JSON<textarea class="mono" rows="7" spellcheck=${false} value=${text} onInput=${onInput} /></label><${Problem} error=${error} /><div class="buttons"><${ActButton} class="primary" act=${trigger} onError=${setError}>Trigger<//></div></div><//>
  `;
}
