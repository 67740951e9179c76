// @ts-check
import { get } from "../core/api.js";
import { useChanges } from "../core/changes.js";
import { ago, capital, dayAndTime, duration, number, plural, shortId } from "../core/format.js";
import { html } from "../core/html.js";
import { goTo, pageAt } from "../core/location.js";
import { useData, useNow } from "../core/use_data.js";
import { Copy, Guarded, Labels, Problem } from "../parts/basics.js";
import { Bulk, BulkDialog, dryRun } from "../parts/bulk.js";
import { endsOf } from "../parts/ends.js";
import { Icon, Status } from "../parts/icons.js";
import { useEffect, useLayoutEffect, useMemo, useState } from "../vendor/hooks.js";

const LIMIT = 50;
const LIMIT_OF_GROUP = 200;
// Other filters that an address can have, with their words.
const OTHERS = /** @type {Record<string, (value: string) => string>} */ ({
  held: () => "held",
  retried: (value) => value === "false" ? "no completed retry" : "completed in a retry",
  parentRunId: (value) => `children of ${shortId(value)}`,
  failureKind: (value) => value,
  completedAfter: (value) => `ended after ${dayAndTime(value)}`,
});
const STATUSES = ["pending", "running", "waiting", "completed", "failed", "cancelled"];
const SINCE =
  /** @type {const} */ ([["", "Any time"], ["15m", "Last 15 minutes"], ["1h", "Last hour"], ["24h", "Last 24 hours"], [
    "7d",
    "Last 7 days",
  ]]);
const SINCE_MS =
  /** @type {Record<string, number>} */ ({ "15m": 900_000, "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000 });

/** The list of runs. The address holds its filters. @param {{ query: URLSearchParams, onLive: (isLive: boolean) => void }} props */
export function RunsPage({ query, onLive }) {
  const filter = useMemo(() => filterOf(query), [String(query)]);
  const { jobName, statuses, labels, before } = filter;
  const ofRuns = { jobName, ...Object.fromEntries(labels.map(([key, value]) => [`label.${key}`, value])) };
  const { data: stats } = useData("stats", {}, 5_000);
  const [hasEnds, setEnds] = useState(false);
  // A list without end runs is counted at once; one that leaves some out is not.
  const endRun = filter.ends === "only" ? true : hidesEnds(filter) && hasEnds ? false : undefined;
  const listed = {
    ...ofRuns,
    ...filter.others,
    endRun,
    status: withLeased(statuses),
    createdAfter: filter.createdAfter,
  };
  const limit = filter.error === "" ? LIMIT : LIMIT_OF_GROUP;
  const { data, error, reload } = useData("runs", { ...listed, before, limit, fields: "summary" }, 15_000);
  const [changed, setChanged] = useState(/** @type {Map<string, string>} */ (new Map()));
  const [selected, select] = useState(/** @type {Set<string>} */ (new Set()));
  const [held, hold] = useState(/** @type {any} */ (null)); // the list while its rows must not move
  const isLive = useChanges(ofRuns, ({ id, status }) => {
    if (id !== null && status !== null) setChanged((last) => new Map(last).set(id, status));
    reload();
  });
  useEffect(() => onLive(isLive), [isLive]);
  useEffect(() => {
    if (endsOf(stats).length > 0 || (data?.runs ?? []).some(isEndRun)) setEnds(true);
  }, [stats, data]);
  useLayoutEffect(() => {
    select(new Set());
    hold(null);
    setChanged(new Map());
  }, [String(query)]);
  const shown = held ?? data;
  const patched = (/** @type {any} */ run) => ({ ...run, status: changed.get(run.id) ?? run.status });
  const isListed = (/** @type {any} */ run) => !(hidesEnds(filter) && isEndRun(run));
  const runs = (shown?.runs ?? []).map(patched).filter((/** @type {any} */ run) =>
    (filter.error === "" || blanked(run.error ?? "") === filter.error) && isListed(run)
  );
  useLayoutEffect(() => {
    if (data === null) return;
    const newest = new Map(data.runs.map((/** @type {any} */ run) => [run.id, run]));
    const isStill = held !== null && (selected.size > 0 || scrollY > 200 || isWalked());
    hold(isStill ? { ...held, runs: runs.map((/** @type {any} */ run) => newest.get(run.id) ?? run) } : data);
    setChanged(new Map());
  }, [data]);
  const fresh = freshIn((data?.runs ?? []).filter(isListed), runs).length;
  const showNew = () => {
    hold(data);
    scrollTo(0, 0);
  };
  const done = () => {
    select(new Set());
    hold(null);
    reload();
  };
  return html`
    <div class="head"><h1>Runs</h1><span class="muted small">${describe(filter)}</span></div>
    <${Guarded} title="Filters"><${Filters} filter=${filter} stats=${stats} hasEnds=${hasEnds} /><//>${filter.error !==
        "" && html`<${Group} key=${filter.error} filter=${filter} onDone=${done} />`}
        ${fresh > 0 &&
          html`<button type="button" class="news" onClick=${showNew}>${
            fresh === LIMIT ? `${LIMIT} or more new runs` : plural(fresh, "new run")
          }</button>`}
        <section class="panel" aria-label="List of runs"><${Problem} error=${error} />
          ${selected.size > 0 &&
            html`<${Bulk} runIds=${[...selected]} filter=${bulkFilterOf(filter, endRun)} total=${
              shown?.total ?? 0
            } hasHeld=${
              runs.some((
                /** @type {any} */ run,
              ) => run.held && selected.has(run.id))
            } onDone=${done} />`}
          ${shown !== null && runs.length === 0 ? html`<p class="pad muted">No run matches.</p>` : html`
            <${Guarded} title="List">
              <${Table} runs=${runs} selected=${selected} select=${select} />
              <//>
          `}
          <div class="pages small"><span class="muted" role="status">${shown === null
            ? "Reading…"
            : filter.error !== ""
            ? `${plural(runs.length, "run")} of ${number(shown.runs.length)} with any error`
            : shown.totalIsAtLeast
            ? `${number(shown.total)} or more runs`
            : plural(shown.total, "run")}</span><div class="buttons push">${before !== "" &&
            html`<button type="button" onClick=${() =>
              goTo(addressOf({ ...filter, before: "" }))}>Newest</button><button type="button" onClick=${() =>
              history.back()}>Newer</button>`}<button type="button" disabled=${!shown?.hasMore} onClick=${() =>
            goTo(addressOf({ ...filter, before: shown.runs.at(-1).id }))}>Older</button></div></div></section>
  `;
}

/** Whether a list leaves out the runs that clean up after others: all but that of one job. @param {Filter} filter */
const hidesEnds = ({ jobName, ends }) => jobName === "" && ends === "";

/** @param {any} run */
const isEndRun = (run) => run.endOf !== undefined;

/** Whether the pointer or the focus is in a row: then the rows must not move. */
const isWalked = () => document.querySelector("tbody:is(:hover, :focus-within)") !== null;

/** The runs that are newer than those that are shown. @param {any[]} runs @param {any[]} shown */
function freshIn(runs, shown) {
  const ids = new Set(shown.map((run) => run.id));
  return runs.filter((run) => !ids.has(run.id) && run.createdAt >= (shown[0]?.createdAt ?? ""));
}

/** @param {{ runs: any[], selected: Set<string>, select: (ids: Set<string>) => void }} props */
function Table({ runs, selected, select }) {
  const now = useNow();
  const areAll = runs.length > 0 && runs.every((run) => selected.has(run.id));
  const toggle = (/** @type {string} */ id) => {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    select(next);
  };
  return html`
    <div class="scroll">
      <table class="list">
        <thead>
          <tr>
            <th
              scope="col"><input type="checkbox" aria-label="Select all of this page" checked=${areAll} onChange=${() =>
                select(new Set(areAll ? [] : runs.map((run) => run.id)))} /></th>
            <th scope="col">Status</th>
            <th scope="col">Job</th>
            <th scope="col">Details</th>
            <th scope="col">Labels</th>
            <th scope="col" class="num">Duration</th>
            <th scope="col" class="num">Triggered</th>
          </tr>
        </thead>
        <tbody>${runs.map((run) =>
          html`
            <tr key=${run.id} class=${selected.has(run.id) ? "selected" : ""}>
              <td><input type="checkbox" checked=${selected.has(run.id)} onChange=${() =>
                toggle(run.id)} aria-label=${`Select run ${run.id}`} /></td>
              <td class="c-status">
                <${Status} status=${run.held ? "held" : run.status} />${run.completedAs && html`
                  <a class="tiny" href=${pageAt(`runs/${run.completedAs}`)}>retry completed</a>
                `}
              </td>
              <td
                class="c-job"><a class="name" data-row data-failed=${run.status === "failed"
                  ? ""
                  : undefined} href=${pageAt(`runs/${run.id}`)}>${run
                  .jobName}</a> <span class="mono muted tiny" title=${run.id}>${shortId(run.id)}</span></td>
              <td class="what c-what small" title=${detailOf(run)}>${detailOf(run)}</td>
              <td class="c-labels">
                <${Labels} labels=${run.labels} />
              </td>
              <td class="num c-took">${run.startedAt
                ? duration((run.completedAt ? Date.parse(run.completedAt) : now) - Date.parse(run.startedAt))
                : "–"}</td>
              <td class="num muted small c-when"><time dateTime=${run.createdAt} title=${run.createdAt}>${ago(
                run.createdAt,
                now,
              )}</time></td>
            </tr>
          `
        )}</tbody>
      </table>
    </div>
  `;
}

/** @param {any} run */
function detailOf(run) {
  if (run.error !== undefined) {
    return run.failedStepName === undefined ? run.error : `${run.failedStepName}: ${run.error}`;
  }
  if (run.held) return run.held.message;
  if (run.progress) return run.progress.message ?? `${run.progress.current} of ${run.progress.total ?? "?"}`;
  return run.scheduleName === undefined ? "" : `scheduled by ${run.scheduleName}`;
}

/** @typedef {ReturnType<typeof filterOf>} Filter */

/** @param {URLSearchParams} query */
function filterOf(query) {
  const since = query.get("since") ?? "";
  const ms = SINCE_MS[since];
  return {
    jobName: query.get("jobName") ?? "",
    statuses: query.getAll("status").filter((status) => STATUSES.includes(status)),
    labels: [...query].filter(([name]) => name.startsWith("label.")).map((
      [name, value],
    ) => /** @type {[string, string]} */ ([name.slice(6), value])),
    since,
    // Rounded, so that it stays the same for a while.
    createdAfter: ms === undefined ? "" : new Date(Math.floor((Date.now() - ms) / 60_000) * 60_000).toISOString(),
    before: query.get("before") ?? "",
    error: query.get("error") ?? "",
    others: Object.fromEntries([...query].filter(([name]) => Object.hasOwn(OTHERS, name))),
    ends: query.get("ends") ?? "", // "shown": with end runs; "only": these alone
  };
}

/** @param {Filter} filter */
function addressOf({ jobName, statuses, labels, since, before, error, others, ends }) {
  const named = Object.fromEntries(labels.map(([key, value]) => [`label.${key}`, value]));
  return pageAt("runs", { jobName, status: statuses, ...named, ...others, ends, since, error, before });
}

/** Leased runs are shown as running. @param {readonly string[]} statuses */
const withLeased = (statuses) => statuses.includes("running") ? [...statuses, "leased"] : statuses;

/** @param {Filter} filter @param {boolean} [endRun] */
function bulkFilterOf(
  { jobName, statuses, labels, createdAfter, error, others: { held, retried, ...others } },
  endRun,
) {
  return {
    ...(endRun === undefined ? {} : { endRun }),
    ...(jobName === "" ? {} : { jobName }),
    ...(statuses.length === 0 ? {} : { status: withLeased(statuses) }),
    ...(labels.length === 0 ? {} : { labels: Object.fromEntries(labels) }),
    ...(createdAfter === "" ? {} : { createdAfter }),
    ...(error === "" ? {} : { error }),
    ...(held === undefined ? {} : { held: held === "true" }),
    ...(retried === undefined ? {} : { retried: retried === "true" }),
    ...others,
  };
}

/** @param {Filter} filter */
const describe = ({ jobName, statuses }) =>
  [jobName === "" ? "" : `of ${jobName}`, statuses.join(" or ")].filter(Boolean).join(", ");

/** Runs that failed of one error. @param {{ filter: Filter, onDone: () => void }} props */
function Group({ filter, onDone }) {
  const [asked, ask] = useState(/** @type {any} */ (null));
  const [isOpen, setOpen] = useState(false);
  const bulkFilter = bulkFilterOf({ ...filter, before: "" });
  useEffect(() => {
    const body = { filter: { ...bulkFilter, status: "failed" }, from: "failure" };
    void dryRun("retrigger", "Retrigger from the failure", body).then(ask, () => {}); // who may not retry sees no button
  }, []);
  return html`<section class="banner error" data-s="failed" aria-label="Error"><p class="msg">${filter.error}</p><div
    class="buttons"><${Copy} text=${filter.error} label="Copy the error" words="Copy the error" />${
    asked !== null && asked.count > 0 &&
    html`<button class="primary" onClick=${() => setOpen(true)}>${
      asked.count === 1 ? "Retry this one" : `Retry these ${number(asked.count)}`
    }</button>`
  }</div>${
    isOpen && html`<${BulkDialog} asked=${asked} onDone=${onDone} onClose=${() => setOpen(false)} />`
  }</section>`;
}

// As the service does it: an id is a UUID, or eight or more hexadecimal digits with a digit among them.
const IDS = /\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b/gi;
const MAX_ERROR = 300;

/** An error without what differs between runs. @param {string} error */
const blanked = (error) =>
  (error.length > MAX_ERROR ? `${error.slice(0, MAX_ERROR)}…` : error).replace(IDS, "…").replace(
    /\d+(?:[.,]\d+)*/g,
    "#",
  );

/** @param {{ filter: Filter, stats: any, hasEnds: boolean }} props */
function Filters({ filter, stats, hasEnds }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const change = (/** @type {Partial<Filter>} */ part) => goTo(addressOf({ ...filter, before: "", ...part }));
  const find = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const query = text.trim();
    if (query === "") return;
    const [, key, value] = /^([\w./-]+)=(.+)$/.exec(query) ?? [];
    if (key !== undefined && value !== undefined) {
      setText("");
      return change({ labels: [...filter.labels.filter(([each]) => each !== key), [key, value]] });
    }
    try {
      const results = await get("find", { q: query });
      setError(null);
      if (results.length === 1) goTo(pageAt(`runs/${results[0].run.id}`));
      else setFound(results);
    } catch (thrown) {
      setError(thrown);
    }
  };
  const { held, ...others } = filter.others;
  // Counts are kept by job and status alone.
  const hasCounts = filter.ends !== "only" && filter.labels.length === 0 && filter.since === "" &&
    Object.keys(others).length === 0;
  const counts = !hasCounts
    ? null
    : filter.jobName === ""
    ? hidesEnds(filter) ? withoutEnds(stats) : stats?.byStatus
    : stats?.jobs.find((/** @type {any} */ job) => job.jobName === filter.jobName)?.byStatus;
  const names = (stats?.jobs ?? []).map((/** @type {any} */ job) => job.jobName);
  if (filter.jobName !== "" && !names.includes(filter.jobName)) names.push(filter.jobName);
  return html`<div class="stack tight"><form class="filters" role="search" onSubmit=${find}>
      <label class="find"><span class="sr">Find a run by its id, a key, a wait id or label=value</span><${Icon} name="search" /><input type="search" placeholder="Id, key, wait or label=value" value=${text} onInput=${(
    /** @type {any} */ event,
  ) => setText(event.target.value)} /><kbd aria-hidden="true">/</kbd></label>
      <label><span class="sr">Job</span><select value=${filter.jobName} onChange=${(/** @type {any} */ event) =>
    change({ jobName: event.target.value })}><option value="">All jobs</option>${
    names.map((/** @type {string} */ name) => html`<option key=${name} value=${name}>${name}</option>`)
  }</select></label>
      <label><span class="sr">Triggered</span><select value=${filter.since} onChange=${(/** @type {any} */ event) =>
    change({ since: event.target.value })}>${
    SINCE.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)
  }</select></label>${
    filter.labels.map(([key, value]) =>
      html`<${Removable} key=${key} words=${`${key}=${value}`} onRemove=${() =>
        change({ labels: filter.labels.filter(([each]) => each !== key) })} />`
    )
  }${
    Object.entries(filter.others).filter(([name]) => name !== "held").map(([name, value]) => {
      const { [name]: _, ...others } = filter.others;
      return html`<${Removable} key=${name} words=${OTHERS[name]?.(value)} onRemove=${() => change({ others })} />`;
    })
  }</form><${Problem} error=${error} />${
    found !== null && html`
      <div class="panel">
        <div
          class="pages small"><span role="status">${plural(
            found.length,
            "run",
          )} found</span><button type="button" class="quiet push" onClick=${() => setFound(null)}>Close</button></div>
        <ul class="rows">${found.map((/** @type {any} */ { run, by }) =>
          html`
            <li
              key=${run.id}><span><${Status} status=${run.status} /> <a href=${pageAt(`runs/${run.id}`)}>${run
                .jobName}</a> <span class="mono muted tiny">${run
                .id}</span></span><span class="muted small">by ${BY[by] ?? by}</span></li>
          `
        )}</ul>
      </div>
    `
  }<div class="facets" role="group" aria-label="Status">${
    STATUSES.map((status) => {
      const isOn = filter.statuses.includes(status);
      const count = counts && (status === "running" ? counts.running + counts.leased : counts[status]);
      const statuses = isOn ? filter.statuses.filter((each) => each !== status) : [...filter.statuses, status];
      return html`
        <button type="button" class="facet" key=${status} data-s=${status} aria-pressed=${String(isOn)}
          onClick=${() => change({ statuses, error: "" })}><${Status} status=${status}>${capital(
            status,
          )}<//>${count !== undefined && count !== null && html`
            <b>${number(count)}</b>
          `}</button>
      `;
    })
  }<button type="button" class="facet" data-s="held" aria-pressed=${String(held === "true")} onClick=${() =>
    change({ others: held === "true" ? others : { ...others, held: "true" } })}><${Status} status="held" />${
    stats?.held && hasCounts && filter.jobName === "" && html`<b>${number(stats.held.runs)}</b>`
  }</button>${
    hasEnds && filter.jobName === "" &&
    html`<button type="button" class="facet" aria-pressed=${String(!hidesEnds(filter))} onClick=${() =>
      change({ ends: hidesEnds(filter) ? "shown" : "" })}>Clean-ups</button>`
  }${
    filter.statuses.includes("failed") && others.retried === undefined &&
    html`<button type="button" class="facet" aria-pressed="false" onClick=${() =>
      change({ others: { ...filter.others, retried: "false" } })}>No completed retry</button>`
  }</div></div>`;
}

/** How many runs have each status, without those that clean up after others. @param {any} stats */
function withoutEnds(stats) {
  const counts = { ...stats?.byStatus };
  for (const { byStatus } of endsOf(stats)) {
    for (const status of Object.keys(byStatus)) counts[status] -= byStatus[status];
  }
  return stats && counts;
}

/** A filter that can be removed. @param {{ words: string, onRemove: () => void }} props */
const Removable = ({ words, onRemove }) =>
  html`
    <button type="button" class="quiet" aria-label=${`Remove the filter ${words}`}
      onClick=${onRemove}><span class="chip">${words}</span><${Icon} name="close" /></button>
  `;

/** @type {Record<string, string>} */
const BY = {
  id: "id",
  waitId: "wait",
  idempotencyKey: "idempotency key",
  concurrencyKey: "concurrency key",
  label: "label",
};
