import { hostname } from "node:os";
import process from "node:process";
import { runtimeName } from "../statistics/runtime_name.ts";
import type { WorkerDetails } from "../store/worker_record.ts";
import { PACKAGE_VERSION } from "../version.ts";
import type { WorkerSettings } from "./worker_settings.ts";

/** What a worker of this process says of itself. */
export function workerDetails({ name, deployment, concurrency }: WorkerSettings): WorkerDetails {
  return {
    name,
    hostname: readHostname(),
    pid: process.pid,
    runtime: runtimeName(),
    version: PACKAGE_VERSION,
    deployment,
    concurrency,
  };
}

/** The name of the machine; `null` if it would have to be asked for: nobody is asked for a permission. */
function readHostname(): string | null {
  // Other runtimes have no permissions, though a shim may have the name.
  const { permissions } = (globalThis as { Deno?: Partial<typeof Deno> }).Deno ?? {};
  const isGranted = permissions === undefined ||
    permissions.querySync({ name: "sys", kind: "hostname" }).state === "granted";
  try {
    return isGranted ? hostname() : null;
  } catch {
    return null;
  }
}
