import type { BulkResult } from "../../src/engine/bulk/perform_bulk.ts";
import type { BulkSelection } from "../../src/engine/bulk/bulk_selection.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { deed } from "./actor_facts.ts";
import type { Facts, RunFacts } from "./facts.ts";
import type { Request } from "./plan.ts";

type BulkRequest = Extract<Request, { ask: "bulk" }>;

/** Changes many runs, in several calls, and judges what they answer. */
export async function changeMany(engine: Engine, request: BulkRequest, facts: Facts): Promise<string> {
  const { selection: asked } = request;
  if (!("byIds" in asked)) return await changeMatching(engine, request, asked, facts);
  const runs = facts.existing().slice(-asked.byIds);
  if (runs.length === 0) return "nothing to change";
  const runIds = runs.map(({ request: { id } }) => id);
  const first = await changeAll(engine, request, { runIds }, runs, facts);
  const second = await changeAll(engine, request, { runIds }, runs, facts);
  const skipped = new Set(second.skipped.map(({ runId }) => runId));
  const again = runIds.filter((id) => !skipped.has(id) && !first.skipped.some(({ runId }) => runId === id));
  facts.notice("many runs were changed by their ids, twice");
  facts.expect(
    again.length === 0,
    "F11",
    () => `the same ${request.operation} of many runs has changed ${again.join()} a second time`,
  );
  return `${first.done} and ${second.done} runs`;
}

async function changeMatching(
  engine: Engine,
  request: BulkRequest,
  filter: { jobName?: string; labels?: { org: string } },
  facts: Facts,
): Promise<string> {
  const { operation } = request;
  const matches = ({ request: { jobName, labels } }: RunFacts) =>
    (filter.jobName ?? jobName) === jobName && (filter.labels?.org ?? labels.org) === labels.org;
  const matching = facts.existing().filter(matches);
  facts.bulkFilters.push({ operation, matches });
  const chosen = matching.filter((run) => isChosen(run, operation));
  const { done, skipped } = await changeAll(engine, request, { filter }, matching, facts);
  const left = chosen.filter((run) =>
    !isChanged(run, operation) && !run.isDeleted && !isPassedOver(run, operation) &&
    !skipped.some(({ runId }) => runId === run.request.id)
  );
  if (chosen.length > request.limit) facts.notice("many runs were changed in several calls");
  facts.expect(
    left.length === 0,
    "F11",
    () => `a ${operation} of all runs has left ${left.map(({ request: { id } }) => id).join()}`,
  );
  return `${done} runs`;
}

/** Makes one call after another, until there are no more runs. */
async function changeAll(
  engine: Engine,
  { operation, limit, from }: BulkRequest,
  selection: BulkSelection,
  runs: readonly RunFacts[],
  facts: Facts,
): Promise<Pick<BulkResult, "done" | "skipped">> {
  // How many runs there are when the first call looks is known when it has answered.
  const place = operation === "retrigger" ? facts.bulkRetriggers.push(Infinity) - 1 : null;
  if (operation !== "retrigger") { for (const run of runs) run.permitted.add(operation).add(deed(operation, null)); }
  const results: BulkResult[] = [];
  let cursor: string | undefined;
  do {
    const options = { limit, ...(cursor === undefined ? {} : { cursor }) };
    const result = operation === "retrigger"
      ? await engine.retriggerRuns(selection, { ...options, from })
      : operation === "cancel"
      ? await engine.cancelRuns(selection, options)
      : await engine.deleteRuns(selection, options);
    results.push(result);
    if (place !== null && results.length === 1) facts.bulkRetriggers[place] = facts.runs.size - result.done;
    const isWhole = result.matched === result.done + result.skipped.length && result.matched <= limit;
    facts.expect(isWhole, "F11", () => `a call for ${limit} runs was answered ${JSON.stringify(result)}`);
    cursor = result.next ?? undefined;
  } while (cursor !== undefined);
  return {
    done: results.reduce((sum, { done }) => sum + done, 0),
    skipped: results.flatMap(({ skipped }) => skipped),
  };
}

/** Whether a run may have been cleaned up after when the call came to it, or children of it. */
function isPassedOver({ ends, endOf, childPauses }: RunFacts, operation: BulkRequest["operation"]): boolean {
  if (operation === "cancel") return false;
  return ends.length > 0 || (operation === "retrigger" && (endOf !== null || childPauses.size > 0));
}

function isChosen({ hasEnded, retry }: RunFacts, operation: BulkRequest["operation"]): boolean {
  return operation === "cancel" ? !hasEnded : hasEnded && (operation === "delete" || retry === null);
}

function isChanged({ hasEnded, isDeleted, retry, hasLostKey }: RunFacts, operation: BulkRequest["operation"]): boolean {
  // Another run has the key of one that has lost it, and does its work.
  return operation === "cancel" ? hasEnded : operation === "delete" ? isDeleted : retry !== null || hasLostKey;
}
