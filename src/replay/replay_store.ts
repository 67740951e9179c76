import type { ExportedHistory } from "../model/exported_history.ts";
import type { JsonText } from "../values/json.ts";
import type { Lease } from "../model/lease.ts";
import type { Store } from "../store/store.ts";
import type { Claim } from "../store/claim.ts";
import type { NewPause, PauseRequest, PauseResult } from "../store/pause_request.ts";
import type { Part } from "../store/run_query.ts";
import { type ChildResult, deadlineAt, type PauseRecord } from "../model/wait.ts";
import { childrenOf, textOf } from "./claim_of_history.ts";

/** The calls to a store that a replay makes. */
type UsedStore = Pick<
  Store,
  "pause" | "readChildren" | "finish" | "hold" | "getInput" | "getRunState" | "saveInput"
>;

/**
 * The store of one replay. It has the history, and notes in memory what the job prepares. No pause ends: a new one, and
 * one that was open when the history was exported, stay open.
 */
export class ReplayStore implements UsedStore {
  readonly #history: ExportedHistory;
  readonly #pauses: PauseRecord[];
  readonly #park: () => Promise<boolean>;
  #lastNo: number;

  /** @param park Decides whether the run parks, when the job waits for pauses only. */
  constructor(history: ExportedHistory, claim: Claim, park: () => Promise<boolean>) {
    this.#history = history;
    this.#pauses = [...claim.pauses];
    this.#park = park;
    const nos = history.records.flatMap((
      record,
    ) => [record.no ?? 0, "preparedNo" in record ? record.preparedNo ?? 0 : 0]);
    this.#lastNo = nos.reduce((last, no) => Math.max(last, no), 0);
  }

  /** The store, for classes that could call all of it. */
  get asStore(): Store {
    return this as unknown as Store; // a replay makes no other calls
  }

  async pause(_lease: Lease, { pauses, park }: PauseRequest): Promise<PauseResult> {
    const records = pauses.map((pause) => this.#find(pause) ?? this.#add(pause));
    const parked = park && records.every(({ resolution }) => resolution === null) && await this.#park();
    return { parked, pauses: records, created: [], cancelled: [], nextDeadlineInMs: null };
  }

  readChildren(pauseId: string, from: number): Promise<Part<ChildResult> | null> {
    const results = childrenOf(this.#history, pauseId);
    return Promise.resolve(results === null ? null : { items: results.slice(from), hasMore: false });
  }

  getRunState(): ReturnType<Store["getRunState"]> {
    const { payload } = this.#history;
    return Promise.resolve({ run: { payload: textOf(payload) } } as Awaited<ReturnType<Store["getRunState"]>>); // the rest is not read
  }

  getInput(): Promise<null> {
    return Promise.resolve(null);
  }

  saveInput(_lease: Lease, _schemaPrint: string, input: JsonText | null): Promise<JsonText | null> {
    return Promise.resolve(input);
  }

  async finish(): Promise<void> {}

  async hold(): Promise<void> {}

  #find({ kind, name }: NewPause): PauseRecord | undefined {
    return this.#pauses.find((known) => known.kind === kind && known.name === name);
  }

  #add({ id, kind, name, metadata, deadline, prepared }: NewPause): PauseRecord {
    const now = Date.now();
    if (prepared) this.#lastNo += 1;
    const record: PauseRecord = {
      id,
      kind,
      name,
      childCount: 0,
      childTotal: 0,
      child: null,
      metadata,
      deadlineAt: deadlineAt(deadline, now),
      createdAt: now,
      preparedNo: prepared ? this.#lastNo : null,
      resolution: null,
    };
    this.#pauses.push(record);
    return record;
  }
}
