import type { RunHappening } from "../model/event.ts";
import type { Hub } from "../events/hub.ts";
import type { Report } from "../model/execution_report.ts";
import type { Host } from "../model/host.ts";
import { byteLength } from "../values/text.ts";
import type { RunIdentity } from "../model/run.ts";

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

// One write has at most this many progress reports of an execution (beyond that the latest replaces the one before
// it), and at most this many bytes of log lines (beyond that they are only counted). A loop that reports each percent
// makes 101 reports at once: none of them is replaced.
const MAX_PROGRESS = 128;
const MAX_LOG_BYTES = 262_144;
// The size of a line without its message and its data.
const LINE_BYTES = 60;

/** The content of a report, without its number and its time. */
type Said = Report extends infer R ? R extends Report ? Omit<R, "no" | "at"> : never : never;

const NONE: readonly Report[] = [];

/** The reports of an execution that no write has stored yet. */
export class PendingReports {
  #pending: Report[] = [];
  /** How many progress reports are pending, and the bytes of pending log lines: in total, and by report number. */
  #progress = 0;
  #logBytes = 0;
  readonly #bytesOfLine = new Map<number, number>();
  /** The pending reports as they were last sent: several pending writes may share them. */
  #sent: readonly Report[] | null = null;
  #lastNo = 0;
  /** The number of the last report that was sent with a write. Reports up to it must not change any more. */
  #sentNo = 0;
  #leftOut = 0;
  /** The number of the report that says how many lines were left out. */
  #leftOutNo = 0;

  /** Whether there are any. */
  get isEmpty(): boolean {
    return this.#pending.length === 0;
  }

  /** When the oldest was made; `null` if there is none. */
  get oldestAt(): number | null {
    return this.#pending[0]?.at ?? null;
  }

  /** Adds one, made at an instant of the worker's clock. */
  add(said: Said, at: number): void {
    if (said.kind === "log") return this.#addLine(said, at);
    if (said.kind === "progress") this.#makeRoomForProgress();
    this.#push(said, at);
  }

  #addLine(said: Said & { kind: "log" }, at: number): void {
    const bytes = LINE_BYTES + byteLength(JSON.stringify(said.message)) + byteLength(JSON.stringify(said.data));
    if (this.#logBytes + bytes > MAX_LOG_BYTES) return this.#countLeftOut(at);
    this.#push(said, at);
    this.#bytesOfLine.set(this.#lastNo, bytes);
    this.#logBytes += bytes;
  }

  /** All of them, in order, for a write: the next write repeats what this one does not store. */
  send(): readonly Report[] {
    if (this.isEmpty) return NONE;
    this.#sentNo = this.#lastNo;
    this.#sent ??= [...this.#pending];
    return this.#sent;
  }

  /** Removes the reports that a write has stored. */
  noteKept(kept: readonly Report[]): void {
    if (kept === this.#sent) return this.#clear(); // nothing was added since
    const keptNo = kept.at(-1)?.no ?? 0;
    const first = this.#pending.findIndex(({ no }) => no > keptNo);
    this.#remove(0, first === -1 ? this.#pending.length : first);
    if (keptNo >= this.#leftOutNo) this.#leftOut = 0;
  }

  #clear(): void {
    this.#pending = [];
    this.#sent = null;
    this.#progress = 0;
    this.#logBytes = 0;
    this.#leftOut = 0;
    this.#bytesOfLine.clear();
  }

  #push(said: Said, at: number): void {
    this.#lastNo += 1;
    this.#sent = null;
    this.#pending.push({ ...said, no: this.#lastNo, at });
    if (said.kind === "progress") this.#progress += 1;
  }

  /** Drops the latest report of progress if there are many, unless a pending write has it. */
  #makeRoomForProgress(): void {
    if (this.#progress >= MAX_PROGRESS) this.#drop(({ kind }) => kind === "progress");
  }

  /** Adds or updates the line that says how many lines were left out. */
  #countLeftOut(at: number): void {
    this.#leftOut += 1;
    this.#drop(({ no }) => no === this.#leftOutNo);
    const message = `Log lines were left out of the event streams: ${this.#leftOut}`;
    this.#push({ kind: "log", stepName: null, level: "warn", message, data: { leftOut: this.#leftOut } }, at);
    this.#leftOutNo = this.#lastNo;
  }

  /** Drops the last one of a kind, unless a write was sent with it. */
  #drop(isOfKind: (report: Report) => boolean): void {
    const last = this.#pending.findLastIndex((report) => report.no <= this.#sentNo || isOfKind(report));
    if (last !== -1 && this.#pending[last]!.no > this.#sentNo) this.#remove(last, 1);
  }

  #remove(from: number, count: number): void {
    if (count === 0) return;
    for (const { no, kind } of this.#pending.splice(from, count)) {
      if (kind === "progress") this.#progress -= 1;
      this.#logBytes -= this.#bytesOfLine.get(no) ?? 0;
      this.#bytesOfLine.delete(no);
    }
    this.#sent = null;
  }
}
