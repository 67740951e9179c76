import { AsyncLocalStorage } from "node:async_hooks";
import { Mistake, type TransactionRequest } from "../../execution/transactions.ts";
import type { DataSource } from "../../model/data_source.ts";
import type { Host } from "../../model/host.ts";
import type { FindRun, FindWait } from "../../store/transaction.ts";
import { isPromise, type Soon } from "../../values/at_once.ts";
import type { JsonText } from "../../values/json.ts";
import { Requests, type RequestsDeps } from "./requests.ts";

/** One execution of the function of a transaction. */
export interface WorkExecution {
  /** What it has asked the store for. */
  requests: Requests;
  /** What it has returned. */
  value: unknown;
  /** The same as the output of its step. */
  output: JsonText | null;
}

type Deps = Omit<RequestsDeps, "create" | "findWait" | "findRun" | "step"> & {
  host: Host;
  /** Called after each execution on SQLite, where nobody else can write meanwhile. */
  noteDuration: (subject: string, ms: number) => void;
};

/** Executes the function of a transaction, and remembers the last execution: only that one can have been committed. */
export class WorkExecutions {
  readonly #kind: DataSource["kind"];
  readonly #request: TransactionRequest;
  readonly #deps: Deps;
  // A database calls the function from wherever it commits.
  readonly #within = AsyncLocalStorage.snapshot();
  #last: WorkExecution | null = null;

  constructor({ kind }: DataSource, request: TransactionRequest, deps: Deps) {
    this.#kind = kind;
    this.#request = request;
    this.#deps = deps;
  }

  /** The last execution. */
  get last(): WorkExecution | null {
    return this.#last;
  }

  /** Calls the function. What was asked before is not committed. */
  call(tx: object, findWait: FindWait | null = null, findRun: FindRun | null = null): Soon<WorkExecution> {
    this.rollBack(new Error("The transaction was repeated"));
    const requests = new Requests({ ...this.#deps, ...this.#request, findWait, findRun });
    const execution = this.#last = { requests, value: undefined, output: null };
    return this.#within(() => this.#execute(tx, execution));
  }

  /** Tells plugins that nothing was committed. */
  rollBack(error: unknown): void {
    this.#last?.requests.rollBack(error);
  }

  #execute(tx: object, execution: WorkExecution): Soon<WorkExecution> {
    const { subject, work, step } = this.#request;
    const { host, noteDuration } = this.#deps;
    const { requests } = execution;
    const since = host.monotonic();
    const end = (value: unknown): WorkExecution => {
      requests.end();
      execution.value = value;
      execution.output = step?.encode(value) ?? null;
      return execution;
    };
    Object.assign(tx, requests.calls(this.#kind));
    if (this.#kind !== "sqlite") {
      return (async () => {
        const value = await work(tx);
        await requests.checked();
        return end(value);
      })();
    }
    try {
      const value = work(tx);
      if (!isPromise(value)) return end(value);
      value.then(() => {}, () => {}); // nobody waits for it
      throw new Mistake(
        new TypeError(
          `The function of ${subject} returned a promise: on SQLite it has to be synchronous, since other writes share its commit`,
        ),
      );
    } finally {
      requests.end();
      noteDuration(subject, host.monotonic() - since);
    }
  }
}
