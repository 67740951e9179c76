// bench/deno.json names the packages of other engines: they are loaded with `--peers` alone.
import { OpenWorkflow } from "openworkflow";
import { BackendSqlite } from "openworkflow/sqlite";
import { DatabaseSync } from "node:sqlite";
import type { BenchEngine, BenchInput, OpenOptions } from "../engine.ts";

/**
 * Opens openworkflow with its SQLite backend, which is on `node:sqlite` with WAL and `synchronous=FULL`. How often it
 * polls cannot be set.
 */
export function openOpenworkflow({ path, jobs, concurrency }: OpenOptions): Promise<BenchEngine> {
  const backend = BackendSqlite.connect(path);
  const openedAt = new Date().toISOString();
  let claimedAt: number | null = null;
  const claim = backend.claimWorkflowRun.bind(backend);
  backend.claimWorkflowRun = async (request) => {
    const startedAt = performance.now();
    const run = await claim(request);
    if (run !== null) claimedAt = startedAt;
    return run;
  };
  const client = new OpenWorkflow({ backend });
  const workflows = new Map(
    Object.entries(jobs).map(([name, job]) => [
      name,
      client.defineWorkflow<BenchInput, void>({ name }, async ({ input, step }) => {
        await job({
          step: (stepName, work) => step.run({ name: stepName }, () => work() as never),
          replay: () => step.sleep("replay", "1ms"),
        }, input);
      }),
    ]),
  );
  const worker = client.newWorker({ concurrency });
  return Promise.resolve({
    trigger: (job, input) => workflows.get(job)!.run(input),
    batchTrigger: null,
    async triggerAndWait(job, input) {
      const run = await workflows.get(job)!.run(input);
      await run.result();
    },
    start: () => worker.start(),
    completed: (count) => untilCompleted(path, openedAt, count),
    list({ jobName, status, labels }) {
      if (labels !== undefined) return undefined;
      return backend.listWorkflowRuns({
        limit: 50,
        ...(jobName === undefined ? {} : { workflowName: jobName }),
        ...(status === undefined ? {} : { status }),
      }).then(({ data }) => data.length);
    },
    get claimedAt() {
      return claimedAt;
    },
    async [Symbol.asyncDispose]() {
      await worker.stop();
      await backend.stop();
    },
  });
}

/** It tells nobody when a run has completed: looks every few milliseconds, on a connection of its own. */
async function untilCompleted(path: string, openedAt: string, count: number): Promise<void> {
  using db = new DatabaseSync(path, { readOnly: true });
  const query = db.prepare(
    "SELECT count(*) AS n FROM workflow_runs WHERE namespace_id = 'default' AND status = 'completed' AND created_at >= ?",
  );
  while (Number(query.get(openedAt)!.n) < count) await new Promise((resolve) => setTimeout(resolve, 5));
}
