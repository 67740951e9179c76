// @ts-check
import { post } from "../core/api.js";
import { number, plural } from "../core/format.js";
import { html } from "../core/html.js";
import { useState } from "../vendor/hooks.js";
import { Dialog, Problem } from "./basics.js";

const MAX_IDS = 1_000;
const OPERATIONS = /** @type {const} */ ([
  ["failure", "retrigger", "Retrigger from the failure", { from: "failure" }],
  ["start", "retrigger", "Run again", { from: "start" }],
  ["cancel", "cancel", "Cancel", {}],
  ["delete", "delete", "Delete", {}],
]);

/**
 * What can be done with the selected runs, or with all that match. A dry run says how many it would be.
 * @param {{ runIds: string[], filter: any, total: number, onDone: () => void }} props
 */
export function Bulk({ runIds, filter, total, onDone }) {
  // Whoever then changes the selection means those that are selected.
  const [allBeside, setAllBeside] = useState(/** @type {string | null} */ (null));
  const areAll = allBeside === runIds.join();
  const [asked, ask] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [progress, setProgress] = useState("");
  const selection = areAll ? { filter } : { runIds: runIds.slice(0, MAX_IDS) };
  const isSelected = areAll ? `All ${number(total)} that match` : `${number(runIds.length)} selected`;
  const prepare = async (/** @type {typeof OPERATIONS[number]} */ [key, operation, words, options]) => {
    setError(null);
    try {
      const { matched, skipped } = await post(`runs/${operation}`, {}, { ...selection, ...options, dryRun: true });
      ask({ key, operation, words, options, selection, count: matched - skipped.length, skipped: skipped.length });
    } catch (thrown) {
      setError(thrown);
    }
  };
  const perform = async () => {
    let [done, skipped] = [0, 0];
    /** @type {string | null} */
    let cursor = null;
    do {
      /** @type {any} */
      const result = await post(`runs/${asked.operation}`, {}, {
        ...asked.selection,
        ...asked.options,
        ...(cursor === null ? {} : { cursor }),
      });
      done += result.done;
      skipped += result.skipped.length;
      cursor = result.next;
      setProgress(`${plural(done, "run")} done${skipped > 0 ? `, ${number(skipped)} left out` : ""}`);
    } while (cursor !== null);
  };
  const close = () => {
    ask(null);
    if (progress !== "") onDone();
  };
  return html`
    <div class="bulk" role="region"
      aria-label="Selection"><strong role="status">${isSelected}</strong>${!areAll && total > runIds.length &&
        html`<button class="quiet" onClick=${() => setAllBeside(runIds.join())}>Select all ${
          number(total)
        } that match</button>`}<button class="quiet" onClick=${onDone}>Clear</button><div class="buttons push">${OPERATIONS
        .map((operation) =>
          html`<button key=${operation[0]} class=${operation[0] === "delete" ? "danger" : ""} onClick=${() =>
            prepare(operation)}>${operation[2]}</button>`
        )}</div><${Problem} error=${error} /></div>${asked !== null && html`
        <${Dialog} title=${`${asked.words}: ${plural(asked.count, "run")}`} confirm=${`${asked.words}: ${
          number(asked.count)
        }`} isDanger=${asked.operation !== "retrigger"} isBlocked=${asked.count === 0} onConfirm=${perform}
          onClose=${close}>
          <p>${asked.skipped > 0
            ? `${plural(asked.skipped, "selected run")} cannot: their state does not allow it.`
            : "A dry run has counted them. Runs whose state does not allow it are left out."}${asked.operation ===
              "delete"
            ? " This cannot be undone."
            : ""}</p>
          <p role="status">${progress}</p>
          <//>
      `}
  `;
}
