import assert from "node:assert/strict";

interface Acknowledged {
  receipt: string;
  /** In which execution of the run the job was given it. */
  execution: number;
}

/**
 * Reads from the lines of a ledger what the jobs were given, by run and step.
 *
 * An older execution may still start a step that a newer one has recorded: its process learns with its next call to the
 * store that it has lost the lease, and that call is refused. The same execution or a newer one may not.
 *
 * @throws A step was executed again after it was acknowledged, or had two results.
 */
export function readAcknowledged(lines: Iterable<readonly string[]>): Map<string, Map<string, string>> {
  const acknowledged = new Map<string, Map<string, Acknowledged>>();
  for (const [word, runId, stepName, executionText, receipt] of lines as Iterable<[string, ...string[]]>) {
    const execution = Number(executionText);
    const ofRun = acknowledged.get(runId!) ?? new Map<string, Acknowledged>();
    const known = ofRun.get(stepName!);
    if (word === "start") {
      assert.ok(
        known === undefined || execution < known.execution,
        `${stepName} of run ${runId} was executed again after its result was acknowledged`,
      );
    } else {
      assert.ok(known === undefined || known.receipt === receipt, `${stepName} of run ${runId} had two results`);
      // A replay acknowledges it once more.
      acknowledged.set(runId!, ofRun.set(stepName!, { receipt: receipt!, execution: known?.execution ?? execution }));
    }
  }
  return new Map(
    [...acknowledged].map(([runId, steps]) => [
      runId,
      new Map([...steps].map(([name, { receipt }]) => [name, receipt])),
    ]),
  );
}
