import { hostname } from "node:os";
import process from "node:process";
import type { Host } from "../model/host.ts";
import type { JobCatalog } from "../model/job/job_catalog.ts";
import type { ClaimRequest } from "../store/claim.ts";
import { runtimeName } from "../statistics/runtime_name.ts";
import type { WorkerDetails } from "../store/operate.ts";
import { PACKAGE_VERSION } from "../model/version.ts";
import type { Execution } from "./execution.ts";
import type { WorkerSettings } from "./worker_settings.ts";

// The maximum number of runs of one claim, so that no claim holds the event loop or the lock for long.
const MAX_CLAIMS = 40;

/** A claim that is sent. */
interface SentClaim {
  /** What is asked of the store. */
  request: ClaimRequest;
  /** When it was first sent, on the monotonic clock: the leases of a repeated claim began then. */
  sentAt: number;
}

/** What a worker can take. */
interface Capacity {
  /** Its executions, including those that have been interrupted. */
  executions: Iterable<Execution>;
  /** The maximum number of runs to claim. */
  limit: number;
  /** Whether held runs are claimed, and no others. */
  triesHeld: boolean;
  /** Whether runs that are claimed alone are claimed, and no others. */
  isAlone: boolean;
}

/** Builds the claims of a worker. A claim that was not answered is repeated unchanged: it may have claimed runs. */
export class ClaimRequests {
  readonly #workerId: string;
  readonly #jobs: JobCatalog;
  readonly #settings: WorkerSettings;
  readonly #worker: ClaimRequest["worker"];
  readonly #host: Host;
  #unanswered: SentClaim | null = null;

  constructor(workerId: string, jobs: JobCatalog, settings: WorkerSettings, host: Host) {
    this.#workerId = workerId;
    this.#jobs = jobs;
    this.#settings = settings;
    this.#worker = workerDetails(settings);
    this.#host = host;
  }

  /** Whether a claim was sent whose answer is not known. */
  get isUnanswered(): boolean {
    return this.#unanswered !== null;
  }

  /** The claim to send now: the one that was not answered, or a new one. */
  next(capacity: Capacity): SentClaim {
    this.#unanswered ??= { request: this.#newRequest(capacity), sentAt: this.#host.monotonic() };
    return this.#unanswered;
  }

  /** Notes that the store has answered. */
  noteAnswer(): void {
    this.#unanswered = null;
  }

  #newRequest({ executions, limit, triesHeld, isAlone }: Capacity): ClaimRequest {
    const holding = [...executions].filter(({ state }) => !state.isInterrupted);
    return {
      workerId: this.#workerId,
      worker: this.#worker,
      claimId: this.#host.newId(),
      jobs: this.#jobs.known,
      holding: holding.map(({ lease }) => lease),
      limit: Math.min(MAX_CLAIMS, limit),
      triesHeld,
      isAlone,
      leaseMs: this.#settings.staleThreshold,
      maxAbandonments: this.#settings.maxAbandonments,
    };
  }
}

/** What a worker of this process says of itself. */
function workerDetails({ name, deployment, concurrency }: WorkerSettings): WorkerDetails {
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
