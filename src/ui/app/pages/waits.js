// @ts-check
import { ago, countOfWaits, shortId, until } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { useData, useNow } from "../core/use_data.js";
import { Labels, Problem } from "../parts/basics.js";
import { Shape } from "../parts/icons.js";
import { Ask } from "../parts/ask.js";
import { useState } from "../vendor/hooks.js";

/** Waits of all runs that nobody has signalled, the soonest deadline first. */
export function WaitsPage() {
  const [cursors, setCursors] = useState(/** @type {string[]} */ ([]));
  const [open, setOpen] = useState("");
  const { data, error, reload } = useData("waits/open", { limit: 50, cursor: cursors.at(-1) }, 5_000);
  const [late, setLate] = useState(/** @type {any} */ (null));
  const now = useNow();
  const waits = data?.waits ?? [];
  const isCounted = data !== null && (cursors.length === 0 || data.total !== null);
  return html`
    <div class="head"><h1>Waits</h1><span class="muted small">for a signal, the soonest deadline first</span></div>
    <${Problem} error=${late ?? error} />
    <section class="panel"
      aria-label="Open waits">${data !== null && waits.length === 0
        ? html`<p class="pad muted">No run waits for a signal.</p>`
        : html`<ul class="waits">${
          waits.map((/** @type {any} */ wait) =>
            html`<li key=${wait.id} data-s="waiting"><div class="line"><${Shape} status="waiting" />
          <div><button class="name quiet" data-row aria-expanded=${String(open === wait.id)} onClick=${() => {
              setOpen(open === wait.id ? "" : wait.id);
              setLate(null);
            }}>${wait.name}</button>
            <p class="small muted">of <a href=${pageAt(`runs/${wait.runId}`)}>${wait.jobName} <span class="mono tiny">${
              shortId(wait.runId)
            }</span></a>, since ${ago(wait.createdAt, now)} <${Labels} labels=${wait.labels} /></p></div>
          <p class="small deadline">${
              wait.deadlineAt === null ? "no deadline" : `times out ${until(wait.deadlineAt, now)}`
            }</p></div>${
              open === wait.id && html`
                <${Ask} wait=${wait} onDone=${reload} onLate=${setLate} />
              `
            }</li>`
          )
        }</ul>`}<div class="pages small"><span class="muted" role="status">${isCounted
        ? `${countOfWaits(data)} open`
        : ""}</span><div class="buttons push"><button disabled=${cursors
        .length === 0} onClick=${() => setCursors(cursors.slice(0, -1))}>Sooner</button><button disabled=${!data
        ?.next} onClick=${() => setCursors([...cursors, data.next])}>Later</button></div></div></section>
  `;
}
