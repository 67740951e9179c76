// @ts-check
import { duration } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { useData } from "../core/use_data.js";
import { Ago, Panel, Problem } from "../parts/basics.js";
import { Status } from "../parts/icons.js";

const MAX_ROWS = 100;

/** The end run of a run, or its newest retry: its status and what it has undone. @param {{ runId: string }} props */
export function CleanUp({ runId }) {
  const { data: first, error } = useData("run", { runId }, 2_000);
  const { data: retry } = useData(first?.retriggeredAs ? "run" : null, { runId: first?.retriggeredAs }, 2_000);
  const run = retry ?? first;
  const { data: timeline } = useData(
    run === null ? null : "timeline",
    { runId: run?.id, limit: MAX_ROWS },
    run?.isTerminal ? 1e9 : 2_000,
  );
  if (run === null) return error?.status === 404 ? null : html`<${Problem} error=${error} />`;
  const rows = (timeline?.rows ?? []).filter((/** @type {any} */ { kind }) => kind !== "queued" && kind !== "recovery");
  const state = html`<${Status} status=${run.held ? "held" : run.status} /> <${Ago} at=${
    run.completedAt ?? run.createdAt
  } />${run === retry ? ", in a retry" : ""}`;
  const problem = run.error ?? run.held?.message;
  return html`
    <${Panel} title="Clean-up" aside=${state}
      actions=${html`<a class="small" href=${pageAt(`runs/${run.id}`)}>Open the clean-up</a>`}>${problem && html`
        <p class="pad small bad">${problem}</p>
      `}<ul class="rows">${rows.map((/** @type {any} */ { kind, name, status, startedAt, endedAt }) =>
        html`
          <li key=${`${kind} ${name}`}>
            <span><${Status} status=${shapeOf(kind, status)} /> <span>${name}</span></span>
            <span class="small muted">${endedAt === null
              ? ""
              : duration(Date.parse(endedAt) - Date.parse(startedAt))}</span>
          </li>
        `
      )}${timeline !== null && rows.length === 0 &&
        html`<li class="muted small">It has recorded nothing yet.</li>`}</ul><//>
  `;
}

/** @param {string} kind @param {string} status */
const shapeOf = (kind, status) =>
  /** @type {any} */ ({ signal: "completed", timeout: "failed", closed: "cancelled" })[status] ??
    (status === "pending" ? kind === "sleep" ? "sleeping" : "waiting" : status);
