// @ts-check
import { post } from "../core/api.js";
import { capital, number, plural, shortId } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { useData } from "../core/use_data.js";
import { ActButton, Ago, Panel, Problem } from "../parts/basics.js";
import { eachPart } from "../parts/bulk.js";
import { Status } from "../parts/icons.js";
import { useEffect, useState } from "../vendor/hooks.js";

const LIMIT = 10;
const ORDER = ["failed", "held", "running", "waiting", "pending", "cancelled", "completed"];

/**
 * How many children a run has by their states; a held one is not pending.
 * @param {any} children @returns {[status: string, count: number][]}
 */
function countsOf({ byStatus, held }) {
  const counts = { ...byStatus, held, running: byStatus.running + byStatus.leased, pending: byStatus.pending - held };
  return ORDER.map((status) => /** @type {[string, number]} */ ([status, counts[status]])).filter(([, count]) =>
    count > 0
  );
}

/** The children of a run: a bar of their states, and a part of them. @param {{ runId: string, first: any, reload: () => void }} props */
export function Children({ runId, first, reload }) {
  const [status, setStatus] = useState("");
  const [cursors, setCursors] = useState(/** @type {string[]} */ ([]));
  const [failed, setFailed] = useState(/** @type {any} */ (null));
  const isFirst = status === "" && cursors.length === 0;
  const query = {
    ...{ runId, limit: LIMIT, cursor: cursors.at(-1) },
    ...status === "held" ? { held: true } : { status: status === "running" ? ["running", "leased"] : status },
    ...status === "pending" ? { held: false } : {},
  };
  const { data, error, reload: reloadPart } = useData(isFirst ? null : "children", query, 1e9);
  useEffect(reloadPart, [first]);
  const part = isFirst ? first : data;
  const done = () => [reload, reloadPart].forEach((each) => each());
  const show = (/** @type {string} */ next) => {
    setStatus(next === status ? "" : next);
    setCursors([]);
  };
  const resume = (/** @type {string} */ id) => async () => {
    await post("resume", { runId: id });
    done();
  };
  const resumeAll = async () => {
    await eachPart("resume", { filter: { held: true, parentRunId: runId } });
    done();
  };
  const counts = first.byStatus === null ? [] : countsOf(first);
  return html`
    <${Panel} title="Children" aside=${first.total === null ? "" : number(first.total)}
      actions=${html`<a class="small" href=${pageAt("runs", { parentRunId: runId })}>All children</a>${
        first.held > 0 &&
        html`<${ActButton} class="primary" act=${resumeAll} onError=${setFailed}>Resume ${
          first.held === 1 ? "the held one" : `all ${number(first.held)} held`
        }<//>`
      }`}><div class="pad stack tight"><div class="kinds" aria-hidden="true">${counts.map(([each, count]) =>
        html`<i key=${each} data-s=${each} style=${{ flexGrow: count }} />`
      )}</div><div class="facets" role="group" aria-label="Status of children">${counts.map(([each, count]) =>
        html`
          <button class="facet" key=${each} data-s=${each} aria-pressed=${String(each === status)}
            onClick=${() => show(each)}><${Status} status=${each}>${capital(each)}<//><b>${number(count)}</b></button>
        `
      )}</div></div><${Problem} error=${failed ?? error} /><ul class="rows children">${(part?.children ?? []).map((
        /** @type {any} */ child,
      ) =>
        html`
          <li
            key=${child.id}><span><${Status} status=${child.held
              ? "held"
              : child.status} /> <a data-row data-failed=${child.status === "failed" ? "" : undefined} href=${pageAt(
                `runs/${child.id}`,
              )}>${child.jobName}</a> <span class="mono muted tiny">${shortId(
                child.id,
              )}</span></span><span class="small nowrap">${child.held
              ? html`<${ActButton} act=${resume(child.id)} onError=${setFailed}>Resume<//>`
              : html`<${Ago} at=${child.completedAt ?? child.createdAt} />`}</span><span class="tiny muted what">${child
              .held?.message ?? child.error ??
              child.progress?.message ?? ""}</span></li>
        `
      )}</ul>${(cursors.length > 0 || part?.next) && html`
        <div
          class="pages small"><span class="muted">${plural(
            part?.children.length ?? 0,
            "child",
            "children",
          )} from ${number(
            cursors.length * LIMIT + 1,
          )}</span><div class="buttons push"><button disabled=${cursors.length === 0} onClick=${() =>
            setCursors(cursors.slice(0, -1))}>Back</button><button disabled=${!part?.next} onClick=${() =>
            setCursors([...cursors, part.next])}>More</button></div></div>
      `}<//>
  `;
}
