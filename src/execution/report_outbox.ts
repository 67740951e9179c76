import type { RunHappening } from "../event.ts";
import type { Hub } from "../events/hub.ts";
import type { Host } from "../host.ts";
import type { Report } from "../execution_report.ts";
import type { RunIdentity } from "../run.ts";
import { PendingReports, type Said } from "./pending_reports.ts";

/**
 * Publishes reports (the start of a step, progress, log lines) in this process, and sends them with the next write of
 * the run.
 */
export class ReportOutbox {
  readonly #run: RunIdentity;
  readonly #hub: Hub;
  readonly #host: Host;
  readonly #onReport: () => void;
  readonly #reports = new PendingReports();
  /** Pending writes that carry reports. */
  #writes = 0;

  /** @param onReport Called when there is something to send, since the next write may come late. */
  constructor(run: RunIdentity, hub: Hub, host: Host, onReport: () => void) {
    this.#run = run;
    this.#hub = hub;
    this.#host = host;
    this.#onReport = onReport;
  }

  /** Publishes a report, and sends it with the next write. */
  add(said: Said): void {
    const at = this.#host.now();
    this.#reports.add(said, at);
    this.#hub.publish(this.#run, toHappening(said), at);
    this.#onReport();
  }

  /** Since when a report waits for a write, on the wall clock; `null` if none does, or a write is pending. */
  get waitSince(): number | null {
    return this.#writes > 0 ? null : this.#reports.oldestAt;
  }

  /** The pending reports, for a write. */
  send(): readonly Report[] {
    return this.#reports.send();
  }

  /** Registers a write that carries reports. Call {@linkcode ReportOutbox.endWrite} when it has ended. */
  beginWrite(): void {
    this.#writes += 1;
  }

  /** Registers the end of a write, and removes the reports that it has stored. */
  endWrite(stored: readonly Report[]): void {
    this.#writes -= 1;
    this.noteStored(stored);
  }

  /** Removes the reports that a write has stored, and asks for another write if there are more. */
  noteStored(stored: readonly Report[]): void {
    if (stored.length > 0) this.#reports.noteKept(stored);
    if (!this.#reports.isEmpty) this.#onReport();
  }
}

function toHappening(said: Said): RunHappening {
  switch (said.kind) {
    case "start": {
      const { stepName, stepIndex, attempt } = said;
      return { type: "step:start", stepName, stepIndex, attempt };
    }
    case "progress":
      return { type: "run:progress", progress: said.progress };
    case "log": {
      const { stepName, level, message, data } = said;
      return { type: "log:write", stepName, level, message, data };
    }
  }
}
