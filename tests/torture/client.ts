import type { Chance } from "../support/chance.ts";
import { EventReader } from "../support/event_reader.ts";
import { type Answer, type Asker, NobodyLeft } from "./asker.ts";
import type { Book, TriggerRequest } from "./book.ts";
import type { HeardStream } from "./checks/check_stream.ts";
import { outcomeOf } from "./fact.ts";
import type { Member } from "./fleet.ts";
import { FAILING_JOB, JOB_NAMES } from "./jobs.ts";
import { nap } from "./nap.ts";
import type { Sights } from "./sights.ts";
import type { Tally } from "./tally.ts";

/** What the clients share. */
export interface ClientDeps {
  asker: Asker;
  book: Book;
  chance: Chance;
  sights: Sights;
  tally: Tally;
  /** Hears of answers that cannot be, and of which run. */
  onProblem: (message: string, run: string | null) => void;
  /** Hears of streams that have come to their end. */
  onStream: (stream: HeardStream) => void;
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
const PATIENT_RUNS = 40;
const REMEMBERED = 100;
const BREATH_MS = 40;

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
      if (!(error instanceof NobodyLeft)) throw error;
    }
  }

  async #act(): Promise<void> {
    const { chance } = this.#deps;
    const act = chance.weighted([
      [10, () => this.#trigger()],
      [2, () => this.#triggerAgain()],
      [6, () => this.#signalSomebody()],
      [3, () => this.#signalAgain()],
      [1, () => this.#cancel()],
      [0.7, () => this.#retrigger()],
      [1.5, () => this.#delete()],
      [1, () => this.#list()],
      [1.5, () => this.#subscribe()],
    ]);
    await act();
  }

  async #trigger(): Promise<void> {
    const { chance, sights } = this.#deps;
    if (sights.unfinished + sights.triggered > PATIENT_RUNS) return;
    sights.triggered += 1;
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
    const { asker, book, tally } = this.#deps;
    const { job, token, seed, key, idempotencyKey, coalesce } = request;
    const body = {
      jobName: job,
      input: { token, seed, key },
      ...(idempotencyKey === null ? {} : { idempotencyKey }),
      ...(key === null ? {} : { concurrencyKey: key }),
      ...(coalesce === null ? {} : { coalesce }),
      labels: { token, storm: "yes" },
    };
    const answer = await asker.ask("POST", "/trigger", { body, onSend: () => book.noteTrigger(request) });
    if (answer.status !== 200) return this.#complain(`POST /trigger with token ${token}`, null, answer);
    tally.add("triggers answered");
    const told = JSON.parse(answer.text);
    book.takeTrigger(request, told);
    remember(this.#runs, told.runId);
  }

  async #signalSomebody(): Promise<void> {
    const { asker, book, chance } = this.#deps;
    const listed = await asker.ask("GET", "/runs?status=waiting&limit=50");
    if (listed.status !== 200) return this.#complain("GET /runs", null, listed);
    const { runs } = JSON.parse(listed.text);
    if (runs.length === 0) return;
    const run: string = chance.pick<{ id: string }>(runs).id;
    const shown = await asker.ask("GET", `/waits?runId=${run}`);
    if (shown.status === 404 && book.of(run).deletesAsked > 0) return;
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
    const { asker, book, tally } = this.#deps;
    const { run, waitId, signalId, payload } = signal;
    const value = outcomeOf({ outcome: "signal", payload, signalId });
    book.noteSignal(run, waitId, value);
    const path = `/signal?runId=${run}&waitId=${waitId}`;
    const { status, text } = await asker.ask("POST", path, { body: { signalId, payload } });
    book.takeSignal(run, { waitId, value, status, text });
    if (status !== 200) return tally.add("signals refused");
    const isNew = JSON.parse(text).disposition === "accepted";
    tally.add(isNew ? "signals accepted" : "signal receipts compared");
    if (isNew) remember(this.#signals, signal);
  }

  async #cancel(): Promise<void> {
    const { asker, book, chance, tally } = this.#deps;
    if (this.#runs.length === 0) return;
    const run = chance.pick(this.#runs);
    const receipts = book.of(run);
    receipts.isCancelAsked = true;
    const answer = await asker.ask("POST", `/cancel?runId=${run}`);
    if (answer.status === 200) {
      receipts.isCancelled = true;
      tally.add("cancels confirmed");
    } else if (answer.status === 409) receipts.isSeenOver = true;
    else if (answer.status !== 404 || receipts.deletesAsked === 0) this.#complain("POST /cancel", run, answer);
  }

  async #retrigger(): Promise<void> {
    const { asker, book, chance, sights, tally } = this.#deps;
    if (sights.ended.length === 0 || sights.unfinished + sights.triggered > PATIENT_RUNS) return;
    const { run, job, token } = chance.pick(sights.ended);
    const isResumed = job === FAILING_JOB && chance.happens(0.5);
    const path = `/${chance.pick(["retrigger", "retry"])}?runId=${run}${isResumed ? "&from=failure" : ""}`;
    const answer = await asker.ask("POST", path, { onSend: () => book.noteRetrigger(token) });
    if (answer.status === 404 && book.of(run).deletesAsked > 0) return;
    if (answer.status !== 200) return this.#complain(`POST ${path}`, run, answer);
    tally.add("retriggers");
    book.takeRetrigger(run, JSON.parse(answer.text).runId);
  }

  async #delete(): Promise<void> {
    const { asker, book, chance, sights, tally } = this.#deps;
    if (sights.ended.length === 0) return;
    const { run, token } = chance.pick(sights.ended);
    const receipts = book.of(run);
    const answer = await asker.ask("DELETE", `/run?runId=${run}`, { onSend: () => book.noteDelete(run, token) });
    if (answer.status === 200) tally.add("runs that were deleted");
    // Asked more than once, here or by others: whichever was served first has deleted it.
    const mayBeGone = answer.status === 404 && receipts.deletesAsked > 1;
    if (answer.status === 200 || mayBeGone) receipts.isDeleted = true;
    else this.#complain("DELETE /run", run, answer);
  }

  async #list(): Promise<void> {
    const { asker, chance } = this.#deps;
    const status = chance.pick(["completed", "failed", "running", "pending"]);
    const path = `/runs?status=${status}&jobName=${chance.pick(JOB_NAMES)}&label.storm=yes&limit=${chance.int(30)}`;
    const answer = await asker.ask("GET", path);
    if (answer.status !== 200) return this.#complain(`GET ${path}`, null, answer);
    const { runs, total } = JSON.parse(answer.text) as { runs: { id: string; status: string }[]; total: number };
    const isWrong = runs.some((run) => run.status !== status) || total < runs.length ||
      new Set(runs.map(({ id }) => id)).size < runs.length;
    if (isWrong) this.#complain(`GET ${path}`, null, answer);
  }

  /** Follows a run in the background, until it ends or its server does. */
  async #subscribe(): Promise<void> {
    if (this.#runs.length === 0) return;
    const run = this.#deps.chance.pick(this.#runs.slice(-10));
    const member = await this.#deps.asker.findMember();
    const following = this.#follow(run, member).finally(() => this.#following.delete(following));
    this.#following.add(following);
  }

  async #follow(run: string, member: Member): Promise<void> {
    const { book, onProblem, onStream, tally } = this.#deps;
    const url = `http://127.0.0.1:${member.port}/subscribe?runId=${run}`;
    const response = await fetch(url, { signal: this.#leaving.signal }).catch(() => null);
    if (response === null) return; // nobody answered, or this client has left
    if (response.status !== 200) {
      const text = await response.text().catch(() => "");
      const mayBeGone = response.status === 404 && book.of(run).deletesAsked > 0;
      if (response.status === 503 || mayBeGone) return;
      return this.#complain("GET /subscribe", run, { status: response.status, text });
    }
    tally.add("streams read");
    const reader = new EventReader(response);
    const isEnded = await reader.ended.then(() => true, (error) => {
      // What reading itself throws. All else says that what was read is no stream.
      const isCutOff = error instanceof TypeError || error instanceof DOMException;
      const isExcused = isCutOff && (member.isGoing || this.#leaving.signal.aborted);
      if (!isExcused) {
        onProblem(`a stream was ${isCutOff ? "cut off by a server that goes on" : "none"}: ${error}`, run);
      }
      return false;
    });
    onStream({ run, events: reader.events, isEnded, isServerGone: member.isGoing });
  }

  /** Closes all streams. */
  async leave(): Promise<void> {
    this.#leaving.abort();
    await Promise.all(this.#following);
  }

  #complain(what: string, run: string | null, { status, text }: Answer): void {
    this.#deps.onProblem(`${what} was answered ${status} ${text.slice(0, 2_000)}`, run);
  }
}

function remember<T>(items: T[], item: T): void {
  items.push(item);
  if (items.length > REMEMBERED) items.shift();
}
