import type { Host } from "../host.ts";
import { byteLength } from "../log.ts";
import type { Report } from "../report.ts";

// Of one execution, what is written at once has at most so many reports of progress, of which the latest then replaces
// the one before it, and so many bytes of log lines, of which the rest is counted.
const MAX_PROGRESS = 64;
const MAX_LOG_BYTES = 262_144;

/** What a report says, without its number and its time. */
export type Said = Report extends infer R ? R extends Report ? Omit<R, "no" | "at"> : never : never;

const NONE: readonly Report[] = [];

/** The reports of an execution that no write has kept yet. */
export class Reports {
  readonly #host: Pick<Host, "now">;
  #pending: Report[] = [];
  /** The pending ones as they were last sent: many writes may be under way with the same. */
  #sent: readonly Report[] | null = null;
  #lastNo = 0;
  /** The number of the last report that was sent with a write: it stays as it is. */
  #sentNo = 0;
  /** How long pending log lines are, by number. */
  #logBytes = new Map<number, number>();
  #leftOut = 0;
  /** The number of the line that says how many lines were left out. */
  #leftOutNo = 0;

  /** Begins with none. */
  constructor(host: Pick<Host, "now">) {
    this.#host = host;
  }

  /** Whether there are any. */
  get isEmpty(): boolean {
    return this.#pending.length === 0;
  }

  /** When the oldest was made; `null`: there is none. */
  get oldestAt(): number | null {
    return this.#pending[0]?.at ?? null;
  }

  /** Adds one. */
  add(said: Said): void {
    if (said.kind === "log") return this.#addLine(said);
    if (said.kind === "progress") this.#makeRoomForProgress();
    this.#push(said);
  }

  #addLine(said: Said & { kind: "log" }): void {
    const bytes = byteLength(said.message) + byteLength(JSON.stringify(said.data));
    const pendingBytes = [...this.#logBytes.values()].reduce((sum, bytes) => sum + bytes, 0);
    if (pendingBytes + bytes > MAX_LOG_BYTES) return this.#countLeftOut();
    this.#push(said);
    this.#logBytes.set(this.#lastNo, bytes);
  }

  /** All of them, in their order, for a write: the next one sends again what this one does not keep. */
  send(): readonly Report[] {
    if (this.isEmpty) return NONE;
    this.#sentNo = this.#lastNo;
    this.#sent ??= [...this.#pending];
    return this.#sent;
  }

  /** Notes that a write has kept what it was sent with. */
  noteKept(kept: readonly Report[]): void {
    const keptNo = kept.at(-1)?.no ?? 0;
    if (keptNo >= (this.#pending[0]?.no ?? Infinity)) this.#keepOnly(({ no }) => no > keptNo);
    if (keptNo >= this.#leftOutNo) this.#leftOut = 0;
  }

  #push(said: Said): void {
    this.#lastNo += 1;
    this.#sent = null;
    this.#pending.push({ ...said, no: this.#lastNo, at: this.#host.now() });
  }

  /** Drops the latest report of progress if there are many, unless a write that is under way has it. */
  #makeRoomForProgress(): void {
    const progress = this.#pending.filter(({ kind }) => kind === "progress");
    if (progress.length >= MAX_PROGRESS) this.#drop(progress.at(-1)!.no);
  }

  /** One line says how many lines were left out. */
  #countLeftOut(): void {
    this.#leftOut += 1;
    this.#drop(this.#leftOutNo);
    const message = `Log lines were left out of the event streams: ${this.#leftOut}`;
    this.#push({ kind: "log", stepName: null, level: "warn", message, data: { leftOut: this.#leftOut } });
    this.#leftOutNo = this.#lastNo;
  }

  #drop(droppedNo: number): void {
    if (droppedNo > this.#sentNo) this.#keepOnly(({ no }) => no !== droppedNo);
  }

  #keepOnly(isKept: (report: Report) => boolean): void {
    for (const report of this.#pending) if (!isKept(report)) this.#logBytes.delete(report.no);
    this.#pending = this.#pending.filter(isKept);
    this.#sent = null;
  }
}
