// @ts-check
import { post } from "../core/api.js";
import { ago, dayAndTime, number, until } from "../core/format.js";
import { html } from "../core/html.js";
import { goTo, pageAt } from "../core/location.js";
import { useData, useNow } from "../core/use_data.js";
import { ActButton, Problem } from "../parts/basics.js";
import { Status } from "../parts/icons.js";
import { useState } from "../vendor/hooks.js";

/** Schedules with their next and last slots. */
export function SchedulesPage() {
  const { data, error, reload } = useData("schedules");
  const [failed, setFailed] = useState(/** @type {any} */ (null));
  const now = useNow();
  const change = (/** @type {string} */ what, /** @type {string} */ name) => async () => {
    await post(`schedules/${what}`, { name });
    reload();
  };
  const trigger = (/** @type {string} */ name) => async () => {
    const { runId } = await post("schedules/trigger", { name });
    goTo(pageAt(`runs/${runId}`));
  };
  return html`
    <div class="head">
      <h1>Schedules</h1>
    </div>
    <${Problem} error=${error ?? failed} />
    <section class="panel" aria-label="List of schedules">${data !== null && data.length === 0
      ? html`<p class="pad muted">There are no schedules.</p>`
      : html`<ul class="cards">${
        (data ?? []).map((/** @type {any} */ schedule) => {
          const { name, nextRuns: [next] } = schedule;
          return html`
            <li key=${name}>
              <div
                class="head"><h2 data-row tabindex="-1">${name}</h2>${schedule.pausedAt !== null &&
                  html`<${Status} status="paused" isPill=${true}>${
                    schedule.pausedBy ? `paused by ${schedule.pausedBy}` : undefined
                  }<//>`}${schedule.error !== null &&
                  html`<${Status} status="failed" isPill=${true}>${schedule.error}<//>`}<div class="push buttons"><${ActButton} act=${trigger(
                    name,
                  )} onError=${setFailed}>Trigger now<//>${schedule.pausedAt === null
                  ? html`<${ActButton} act=${change("pause", name)} onError=${setFailed}>Pause<//>`
                  : html`<${ActButton} class="primary" act=${
                    change("resume", name)
                  } onError=${setFailed}>Resume<//>`}</div></div>
                  <dl class="facts"><div><dt>Job</dt><dd><a href=${pageAt(`jobs/${schedule.jobName}`)}>${schedule
                    .jobName}</a></dd></div><div><dt>Pattern</dt><dd class="mono">${schedule.cron}<small>${schedule
                    .timezone}</small></dd></div><div><dt>Next</dt><dd>${next === undefined
                    ? "none"
                    : dayAndTime(next)}<small>${next === undefined
                    ? ""
                    : until(next, now)}</small></dd></div><div><dt>Last</dt><dd>${schedule.lastSlotAt === null
                    ? "never"
                    : schedule.lastRunId === null
                    ? dayAndTime(schedule.lastSlotAt)
                    : html`<a href=${pageAt(`runs/${schedule.lastRunId}`)}>${
                      dayAndTime(schedule.lastSlotAt)
                    }</a>`}<small>${schedule.lastSlotAt === null
                    ? ""
                    : ago(schedule.lastSlotAt, now)}</small></dd></div><div><dt>Skipped</dt><dd>${number(
                      schedule.skipped,
                    )}</dd></div></dl></li>
          `;
        })
      }</ul>`}</section>
  `;
}
