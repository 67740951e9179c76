import type { Chance } from "../support/chance.ts";
import { type Answer, type HttpClient, StormOver } from "./http_client.ts";
import type { ClientRecords, TriggerRequest } from "./client_records.ts";
import type { Chain } from "./checks/check_chain.ts";
import { outcomeOf } from "./fact.ts";
import { FAILING_JOB, JOB_NAMES } from "./jobs.ts";
import { nap } from "./nap.ts";
import type { Observations } from "./observations.ts";
import { RETURNS, Subscriber } from "./subscriber.ts";
import type { Tally } from "./tally.ts";

/** What the clients share. */
export interface ClientDeps {
  http: HttpClient;
  records: ClientRecords;
  chance: Chance;
  observations: Observations;
  tally: Tally;
  /** Hears of answers that cannot be, and of which run. */
  onProblem: (message: string, run: string | null) => void;
  /** Hears of what was received by following. */
  onChain: (chain: Chain) => void;
}

interface Signal {
  run: string;
  waitId: string;
  signalId: string;
  payload: unknown;
}

// Few of everything, so that they meet.
const KEYS = ["red", "green", "blue", "grey"];
const SIGNAL_IDS = ["first", "second", "third"];
const PAYLOADS = [{ isApproved: true, by: ["ä", 1, null] }, null];
/** Values of the label `lane` of all runs. */
export const LANES = ["left", "middle", "right"];
const PATIENT_RUNS = 40;
const REMEMBERED = 100;
const BREATH_MS = 40;
const MAX_FOLLOWED = 3;

/** A user of the service: asks for this and that, remembers what was answered, and asks once more. */
export class Client {
  readonly #deps: ClientDeps;
  readonly #triggers: TriggerRequest[] = [];
  readonly #signals: Signal[] = [];
  readonly #runs: string[] = [];
  readonly #following = new Set<Promise<void>>();
  readonly #leaving = new AbortController();

  /** Begins with nothing. */
  constructor(deps: ClientDeps) {
    this.#deps = deps;
  }

  /** Asks for all kinds of things until the signal is aborted; then only answers the waits that are open. */
  async use(quiet: AbortSignal, over: AbortSignal): Promise<void> {
    const { chance } = this.#deps;
    try {
      while (!over.aborted) {
        if (quiet.aborted) await this.#signalSomebody();
        else await this.#act();
        await nap(quiet.aborted ? BREATH_MS * 3 : chance.int(BREATH_MS), over);
      }
    } catch (error) {
      if (!(error instanceof StormOver)) throw error;
    }
  }

  async #act(): Promise<void> {
    const { chance } = this.#deps;
    const act = chance.weighted<() => void | Promise<void>>([
      [10, () => this.#trigger()],
      [2, () => this.#triggerAgain()],
      [6, () => this.#signalSomebody()],
      [3, () => this.#signalAgain()],
      [1, () => this.#cancel()],
      [0.7, () => this.#retrigger()],
      [1.5, () => this.#delete()],
      [1, () => this.#list()],
      [3, () => this.#subscribe()],
    ]);
    await act();
  }

  async #trigger(): Promise<void> {
    const { chance, observations } = this.#deps;
    if (observations.unfinished + observations.triggered > PATIENT_RUNS) return;
    observations.triggered += 1;
    const job = chance.pick(JOB_NAMES);
    const key = job.startsWith("keyed") ? chance.pick(KEYS) : null;
    const token = crypto.randomUUID().slice(0, 13);
    const request: TriggerRequest = {
      job,
      token,
      seed: chance.int(2 ** 31),
      key,
      idempotencyKey: chance.happens(0.85) ? `key-${token}` : null,
      coalesce: key !== null && chance.happens(0.4) ? chance.pick(["skip", "queue", "active"] as const) : null,
    };
    await this.#sendTrigger(request);
    if (request.idempotencyKey === null) return;
    remember(this.#triggers, request);
    if (chance.happens(0.2)) await Promise.all([this.#sendTrigger(request), this.#sendTrigger(request)]);
  }

  async #triggerAgain(): Promise<void> {
    if (this.#triggers.length > 0) await this.#sendTrigger(this.#deps.chance.pick(this.#triggers));
  }

  async #sendTrigger(request: TriggerRequest): Promise<void> {
    const { http, records, tally } = this.#deps;
    const { job, token, seed, key, idempotencyKey, coalesce } = request;
    const body = {
      jobName: job,
      input: { token, seed, key },
      ...(idempotencyKey === null ? {} : { idempotencyKey }),
      ...(key === null ? {} : { concurrencyKey: key }),
      ...(coalesce === null ? {} : { coalesce }),
      labels: { token, storm: "yes", lane: LANES[seed % LANES.length]! },
    };
    const answer = await http.request("POST", "/trigger", { body, onSend: () => records.noteTrigger(request) });
    if (answer.status !== 200) return this.#complain(`POST /trigger with token ${token}`, null, answer);
    tally.add("triggers answered");
    const told = JSON.parse(answer.text);
    records.takeTrigger(request, told);
    remember(this.#runs, told.runId);
  }

  async #signalSomebody(): Promise<void> {
    const { http, records, chance } = this.#deps;
    const listed = await http.request("GET", "/runs?status=waiting&limit=50");
    if (listed.status !== 200) return this.#complain("GET /runs", null, listed);
    const { runs } = JSON.parse(listed.text);
    if (runs.length === 0) return;
    const run: string = chance.pick<{ id: string }>(runs).id;
    const shown = await http.request("GET", `/waits?runId=${run}`);
    if (shown.status === 404 && records.of(run).deletesAsked > 0) return;
    if (shown.status !== 200) return this.#complain("GET /waits", run, shown);
    for (const { id, status } of JSON.parse(shown.text)) {
      if (status !== "pending") continue;
      const aSignal = () => ({
        run,
        waitId: id,
        signalId: chance.pick(SIGNAL_IDS),
        payload: chance.pick(PAYLOADS),
      });
      // Now and then two that contradict each other, or one twice, at the same moment.
      const signals = Array.from({ length: chance.happens(0.3) ? 2 : 1 }, aSignal);
      if (chance.happens(0.3)) signals.push(signals[0]!);
      await Promise.all(signals.map((signal) => this.#sendSignal(signal)));
    }
  }

  async #signalAgain(): Promise<void> {
    if (this.#signals.length > 0) await this.#sendSignal(this.#deps.chance.pick(this.#signals));
  }

  async #sendSignal(signal: Signal): Promise<void> {
    const { http, records, tally } = this.#deps;
    const { run, waitId, signalId, payload } = signal;
    const value = outcomeOf({ outcome: "signal", payload, signalId });
    records.noteSignal(run, waitId, value);
    const path = `/signal?runId=${run}&waitId=${waitId}`;
    const { status, text } = await http.request("POST", path, { body: { signalId, payload } });
    records.takeSignal(run, { waitId, value, status, text });
    if (status !== 200) return tally.add("signals refused");
    const isNew = JSON.parse(text).disposition === "accepted";
    tally.add(isNew ? "signals accepted" : "signal receipts compared");
    if (isNew) remember(this.#signals, signal);
  }

  async #cancel(): Promise<void> {
    const { http, records, chance, tally } = this.#deps;
    if (this.#runs.length === 0) return;
    const run = chance.pick(this.#runs);
    const receipts = records.of(run);
    receipts.isCancelAsked = true;
    const answer = await http.request("POST", `/cancel?runId=${run}`);
    if (answer.status === 200) {
      receipts.isCancelled = true;
      tally.add("cancels confirmed");
    } else if (answer.status === 409) receipts.isSeenOver = true;
    else if (answer.status !== 404 || receipts.deletesAsked === 0) this.#complain("POST /cancel", run, answer);
  }

  async #retrigger(): Promise<void> {
    const { http, records, chance, observations, tally } = this.#deps;
    if (observations.ended.length === 0 || observations.unfinished + observations.triggered > PATIENT_RUNS) return;
    const { run, job, token } = chance.pick(observations.ended);
    const isResumed = job === FAILING_JOB && chance.happens(0.5);
    const path = `/${chance.pick(["retrigger", "retry"])}?runId=${run}${isResumed ? "&from=failure" : ""}`;
    const answer = await http.request("POST", path, { onSend: () => records.noteRetrigger(token) });
    if (answer.status === 404 && records.of(run).deletesAsked > 0) return;
    if (answer.status !== 200) return this.#complain(`POST ${path}`, run, answer);
    tally.add("retriggers");
    records.takeRetrigger(run, JSON.parse(answer.text).runId);
  }

  async #delete(): Promise<void> {
    const { http, records, chance, observations, tally } = this.#deps;
    if (observations.ended.length === 0) return;
    const { run, token } = chance.pick(observations.ended);
    const receipts = records.of(run);
    const answer = await http.request("DELETE", `/run?runId=${run}`, { onSend: () => records.noteDelete(run, token) });
    if (answer.status === 200) tally.add("runs that were deleted");
    // Asked more than once, here or by others: whichever was served first has deleted it.
    const mayBeGone = answer.status === 404 && receipts.deletesAsked > 1;
    if (answer.status === 200 || mayBeGone) receipts.isDeleted = true;
    else this.#complain("DELETE /run", run, answer);
  }

  async #list(): Promise<void> {
    const { http, chance } = this.#deps;
    const status = chance.pick(["completed", "failed", "running", "pending"]);
    const path = `/runs?status=${status}&jobName=${chance.pick(JOB_NAMES)}&label.storm=yes&limit=${chance.int(30)}`;
    const answer = await http.request("GET", path);
    if (answer.status !== 200) return this.#complain(`GET ${path}`, null, answer);
    const { runs, total } = JSON.parse(answer.text) as { runs: { id: string; status: string }[]; total: number };
    const isWrong = runs.some((run) => run.status !== status) || total < runs.length ||
      new Set(runs.map(({ id }) => id)).size < runs.length;
    if (isWrong) this.#complain(`GET ${path}`, null, answer);
  }

  /** Follows a run in the background, until it ends. */
  #subscribe(): void {
    const { records, chance, onProblem } = this.#deps;
    if (this.#runs.length === 0 || this.#following.size >= MAX_FOLLOWED) return;
    const runId = chance.pick(this.#runs.slice(chance.happens(0.7) ? -1 : -10));
    const mayBeGone = (run: string) => records.of(run).deletesAsked > 0;
    const subscriber = new Subscriber({ runId, filter: {}, returns: chance.pick(RETURNS) }, {
      ...this.#deps,
      mayBeGone,
    });
    const following = subscriber.follow(this.#leaving.signal)
      .catch((error) => onProblem(`a subscriber broke: ${error.stack}`, runId))
      .finally(() => this.#following.delete(following));
    this.#following.add(following);
  }

  /** Resolves when all runs that it follows have ended. */
  async followed(): Promise<void> {
    await Promise.all(this.#following);
  }

  /** Closes all streams. */
  async leave(): Promise<void> {
    this.#leaving.abort();
    await this.followed();
  }

  #complain(what: string, run: string | null, { status, text }: Answer): void {
    this.#deps.onProblem(`${what} was answered ${status} ${text.slice(0, 2_000)}`, run);
  }
}

function remember<T>(items: T[], item: T): void {
  items.push(item);
  if (items.length > REMEMBERED) items.shift();
}
