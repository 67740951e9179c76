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
  ["resume", "resume", "Resume", {}],
  ["cancel", "cancel", "Cancel", {}],
  ["delete", "delete", "Delete", {}],
]);

/**
 * What can be done with the selected runs, or with all that match. A dry run says how many it would be.
 * @param {{ runIds: string[], filter: any, total: number, hasHeld: boolean, onDone: () => void }} props
 */
export function Bulk({ runIds, filter, total, hasHeld, onDone }) {
  // Whoever then changes the selection means those that are selected.
  const [allBeside, setAllBeside] = useState(/** @type {string | null} */ (null));
  const areAll = allBeside === runIds.join();
  const [asked, ask] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const selection = areAll ? { filter } : { runIds: runIds.slice(0, MAX_IDS) };
  const isSelected = areAll ? `All ${number(total)} that match` : `${number(runIds.length)} selected`;
  const prepare = async (/** @type {typeof OPERATIONS[number]} */ [, operation, words, options]) => {
    setError(null);
    try {
      ask(await dryRun(operation, words, { ...selection, ...options }));
    } catch (thrown) {
      setError(thrown);
    }
  };
  return html`
    <div class="bulk" role="region"
      aria-label="Selection"><strong role="status">${isSelected}</strong>${!areAll && total > runIds.length &&
        html`<button class="quiet" onClick=${() => setAllBeside(runIds.join())}>Select all ${
          number(total)
        } that match</button>`}<button class="quiet" onClick=${onDone}>Clear</button><div class="buttons push">${OPERATIONS
        .filter(([key]) => key !== "resume" || hasHeld).map((operation) =>
          html`<button key=${operation[0]} class=${operation[0] === "delete" ? "danger" : ""} onClick=${() =>
            prepare(operation)}>${operation[2]}</button>`
        )}</div><${Problem} error=${error} /></div>${asked !== null &&
        html`<${BulkDialog} asked=${asked} onDone=${onDone} onClose=${() => ask(null)} />`}
  `;
}

/**
 * How many runs an operation would change.
 * @param {any} operation @param {string} words @param {any} body
 */
export async function dryRun(operation, words, body) {
  const { matched, skipped } = await eachPart(operation, { ...body, dryRun: true });
  return { operation, words, body, count: matched - skipped, skipped };
}

/**
 * Asks before an operation, then shows how far it is.
 * @param {{ asked: Awaited<ReturnType<typeof dryRun>>, onDone: () => void, onClose: () => void }} props
 */
export function BulkDialog({ asked: { operation, words, body, count, skipped }, onDone, onClose }) {
  const [progress, setProgress] = useState("");
  const perform = () =>
    eachPart(
      operation,
      body,
      ({ done, skipped: left }) =>
        setProgress(`${plural(done, "run")} done${left > 0 ? `, ${number(left)} left out` : ""}`),
    );
  const close = () => {
    onClose();
    if (progress !== "") onDone();
  };
  return html`
    <${Dialog} title=${`${words}: ${plural(count, "run")}`} confirm=${`${words}: ${number(count)}`}
      isDanger=${["cancel", "delete"].includes(
        operation,
      )} isBlocked=${count === 0} onConfirm=${perform} onClose=${close}>
      <p>${skipped > 0
        ? `${plural(skipped, "selected run")} cannot: their state does not allow it.`
        : "A dry run has counted them. Runs whose state does not allow it are left out."}${operation === "delete"
        ? " This cannot be undone."
        : ""}</p>
      <p role="status">${progress}</p>
      <//>
  `;
}

/**
 * Does something with many runs, part by part.
 * @param {"cancel" | "retrigger" | "resume" | "delete"} operation @param {any} body
 * @param {(sums: { matched: number, done: number, skipped: number }) => void} [onPart]
 */
export async function eachPart(operation, body, onPart) {
  const sums = { matched: 0, done: 0, skipped: 0 };
  /** @type {string | null} */
  let cursor = null;
  do {
    /** @type {any} */
    const result = await post(`runs/${operation}`, {}, { ...body, ...(cursor === null ? {} : { cursor }) });
    sums.matched += result.matched;
    sums.done += result.done;
    sums.skipped += result.skipped.length;
    cursor = result.next;
    onPart?.(sums);
  } while (cursor !== null);
  return sums;
}
