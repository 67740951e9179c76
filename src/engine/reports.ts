import { byteLength } from "../log.ts";
import type { Report } from "../report.ts";

// Of one execution, what is written at once has at most so many reports of progress, of which the latest then replaces
// the one before it, and so many bytes of log lines, of which the rest is counted.
const MAX_PROGRESS = 64;
const MAX_LOG_BYTES = 262_144;
// What a line takes besides its message and its data.
const LINE_BYTES = 60;

/** What a report says, without its number and its time. */
export type Said = Report extends infer R ? R extends Report ? Omit<R, "no" | "at"> : never : never;

interface Pending {
  report: Report;
  /** How many bytes it takes if it is a log line; 0: it is none. */
  logBytes: number;
}

/** The reports of an execution that no write has kept yet. */
export class Reports {
  #pending: Pending[] = [];
  /** How many bytes the log lines among them take, and how many are of progress. */
  #logBytes = 0;
  #progress = 0;
  /** The pending ones as they were last sent: many writes may be under way with the same. */
  #sent: readonly Report[] | null = null;
  #lastNo = 0;
  /** The number of the last report that was sent with a write: it stays as it is. */
  #sentNo = 0;
  #leftOut = 0;
  /** The number of the line that says how many lines were left out. */
  #leftOutNo = 0;

  /** Whether there are any. */
  get isEmpty(): boolean {
    return this.#pending.length === 0;
  }

  /** Adds one, made at an instant of the worker's clock. */
  add(said: Said, at: number): void {
    if (said.kind === "progress") this.#makeRoomForProgress();
    const logBytes = said.kind === "log" ? lineBytes(said) : 0;
    if (logBytes > 0 && this.#logBytes + logBytes > MAX_LOG_BYTES) this.#countLeftOut(at);
    else this.#push({ ...said, at }, logBytes);
  }

  /** All of them, in their order, for a write: the next one sends again what this one does not keep. */
  send(): readonly Report[] {
    this.#sentNo = this.#lastNo;
    this.#sent ??= this.#pending.map(({ report }) => report);
    return this.#sent;
  }

  /** Notes that a write has kept what it was sent with. */
  noteKept(kept: readonly Report[]): void {
    const keptNo = kept.at(-1)?.no ?? 0;
    const first = this.#pending.findIndex(({ report }) => report.no > keptNo);
    this.#remove(0, first === -1 ? this.#pending.length : first);
    if (keptNo >= this.#leftOutNo) this.#leftOut = 0;
  }

  #push(said: Said & { at: number }, logBytes: number): void {
    this.#lastNo += 1;
    this.#sent = null;
    this.#pending.push({ report: { ...said, no: this.#lastNo }, logBytes });
    this.#logBytes += logBytes;
    if (said.kind === "progress") this.#progress += 1;
  }

  /** Drops the latest report of progress if there are many, unless a write that is under way has it. */
  #makeRoomForProgress(): void {
    if (this.#progress < MAX_PROGRESS) return;
    this.#drop(({ kind }) => kind === "progress");
  }

  /** One line says how many lines were left out. */
  #countLeftOut(at: number): void {
    this.#leftOut += 1;
    this.#drop(({ no }) => no === this.#leftOutNo);
    const message = `Log lines were left out of the event streams: ${this.#leftOut}`;
    this.#push({ kind: "log", at, stepName: null, level: "warn", message, data: { leftOut: this.#leftOut } }, 0);
    this.#leftOutNo = this.#lastNo;
  }

  /** Drops the last one of a kind, unless a write was sent with it. */
  #drop(isOfKind: (report: Report) => boolean): void {
    const last = this.#pending.findLastIndex(({ report }) => report.no <= this.#sentNo || isOfKind(report));
    if (last !== -1 && this.#pending[last]!.report.no > this.#sentNo) this.#remove(last, 1);
  }

  #remove(from: number, count: number): void {
    if (count === 0) return;
    for (const { report, logBytes } of this.#pending.splice(from, count)) {
      this.#logBytes -= logBytes;
      if (report.kind === "progress") this.#progress -= 1;
    }
    this.#sent = null;
  }
}

function lineBytes({ message, data }: Said & { kind: "log" }): number {
  return LINE_BYTES + byteLength(message) + byteLength(JSON.stringify(data));
}
