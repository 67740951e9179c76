import type { JsonText } from "../values/json.ts";
import type { WorkerDetails } from "../store/worker_record.ts";

const UNKNOWN: WorkerDetails = {
  name: null,
  hostname: null,
  pid: null,
  runtime: "unknown",
  version: "unknown",
  deployment: null,
  concurrency: 0,
};

/** What a worker has said of itself; a worker of an earlier version says nothing. */
export function parseWorkerDetails(details: JsonText): WorkerDetails {
  return { ...UNKNOWN, ...JSON.parse(details) }; // written by a store, from details
}

/** What a worker has said of itself, as far as reasons name it; 0 slots are not known. */
export function toNamedWorker(
  { name, hostname, deployment, concurrency }: WorkerDetails,
): { name: string | null; hostname: string | null; deployment: string | null; concurrency: number | null } {
  return { name, hostname, deployment, concurrency: concurrency === 0 ? null : concurrency };
}
