import type { Json } from "../json.ts";
import type { Coalesce, Labels, ListFilter, Run, RunFilter } from "../run.ts";
import type { Signal, Wait } from "../wait.ts";

/** What somebody asks for a run: `read` is for the run itself and its logs, `waits` for one wait as for all. */
export type RunOperation = "read" | "subscribe" | "steps" | "retrigger" | "cancel" | "delete" | "waits" | "signal";

/** What a trigger asks for, as it is about to be stored. */
export interface RequestedTrigger {
  /** The name of the job: there is one. */
  readonly jobName: string;
  /** The input as it was given: what is stored and shown. It fits the job's schema. */
  readonly input: Json;
  /**
   * What the job receives: the input as the schema parsed it. Check `parsed` when the rule is about what the job does
   * (a schema may fill in, rename and leave out fields), and `input` when it is about what is stored and shown.
   */
  readonly parsed: Json;
  /** The labels; none were given if it is empty. */
  readonly labels: Labels;
  /** If it was given, as it was given. */
  readonly idempotencyKey?: string;
  /** If it was given, as it was given. Without `tenant`, runs of all callers with one key wait for each other. */
  readonly concurrencyKey?: string;
  /** If it was given. */
  readonly coalesce?: Coalesce;
}

/**
 * Who may do what. `Context` is whatever `authenticate` returns: every other hook is given it first.
 *
 * A hook refuses by throwing a `Response`, a new one each time, which is the answer as it is. Whatever else a hook
 * throws is a 500, and so is taking more than 30 seconds, or returning what was to be thrown (a `Response`, an
 * `Error`, or `false`, by `authenticate` as well); then nothing is done. Runs, waits, signals and triggers are given
 * frozen: what is stored is what was seen.
 */
export interface HandlerAuth<Context> {
  /**
   * Called first, for every request that has a URL, whatever its path. Write it before the other hooks: they get their
   * types from it. To see the body, read that of `request.clone()`, for which there are no limits but yours.
   */
  readonly authenticate: (request: Request) => Context | Promise<Context>;
  /**
   * Names the tenant of the caller: 1 to 255 characters. Called before a run is triggered and before a stream is
   * opened, when nothing else refuses it. The tenant's keys are its own then: `order-1` of the tenant `acme` is
   * stored as `acme/order-1` (a `/` or `%` in the tenant's name as `%2F` or `%25`), and its streams are counted
   * against `limits.maxStreamsPerTenant`. Without it, all callers share their keys, and streams are not counted.
   */
  readonly tenant?: (context: NoInfer<Context>) => string | Promise<string>;
  /**
   * Called before a run is triggered, when everything else about the request has been found right. Without it,
   * everybody who was authenticated may trigger every job with any labels.
   */
  readonly onTrigger?: (context: NoInfer<Context>, trigger: RequestedTrigger) => unknown;
  /**
   * Called before anything about a run is shown or changed, and before a trigger is answered with a run that exists
   * (operation `read`). Without it, everybody who was authenticated may do all that; only `/waits`, `/wait` and
   * `/signal` are refused.
   */
  readonly onRunAccess?: (
    context: NoInfer<Context>,
    run: Readonly<Run>,
    access: { readonly operation: RunOperation },
  ) => unknown;
  /** Called after `onRunAccess` before a signal is stored, unless it was accepted before. */
  readonly onSignal?: (
    context: NoInfer<Context>,
    run: Readonly<Run>,
    wait: Readonly<Wait>,
    signal: Readonly<Signal>,
  ) => unknown;
  /**
   * Answers which runs may be listed. It can only narrow what the client asks for: both filters apply. Its own labels
   * come last: `{ ...filter, labels: { ...filter.labels, org } }`. Without it, all runs may be listed.
   *
   * Runs are looked up by what it adds, so that the time a list takes tells nothing of other runs. If a client has
   * asked for all of that already, it is called a second time, with neither labels nor jobs.
   */
  readonly scopeRuns?: (
    context: NoInfer<Context>,
    filter: Readonly<RunFilter>,
  ) => Readonly<RunFilter> | Promise<Readonly<RunFilter>>;
  /**
   * Answers of which runs the stream of all runs tells. Default: `scopeRuns`, of whose answer only jobs and labels
   * count.
   */
  readonly scopeRunsSubscribe?: (
    context: NoInfer<Context>,
    filter: Readonly<ListFilter>,
  ) => Readonly<ListFilter> | Promise<Readonly<ListFilter>>;
}

/** The names of all hooks. */
export const HOOKS = [
  "authenticate",
  "tenant",
  "onTrigger",
  "onRunAccess",
  "onSignal",
  "scopeRuns",
  "scopeRunsSubscribe",
] as const satisfies readonly (keyof HandlerAuth<unknown>)[];

/**
 * Checks hooks, and copies them, so that none can be taken away later.
 *
 * @throws {TypeError} There is no `authenticate`, or a hook is not a function.
 */
export function checkAuth(auth: unknown): HandlerAuth<unknown> {
  if (typeof auth !== "object" || auth === null) throw new TypeError("auth must be an object of functions");
  const given = HOOKS.flatMap((name) => {
    const hook = (auth as Record<string, unknown>)[name];
    if (hook === undefined && name !== "authenticate") return [];
    if (typeof hook !== "function") throw new TypeError(`auth.${name} must be a function`);
    return [[name, hook.bind(auth)]];
  });
  return Object.fromEntries(given);
}

/** Says what hooks that are missing leave open to everybody who was authenticated; `null` if it is nothing. */
export function describeGaps(
  { onTrigger, onRunAccess, scopeRuns, scopeRunsSubscribe }: HandlerAuth<unknown>,
): string | null {
  const gaps = [
    onRunAccess === undefined &&
    "onRunAccess (may read, follow, retrigger, cancel and delete every run; waits and signals are refused)",
    scopeRuns === undefined && scopeRunsSubscribe === undefined &&
    "scopeRuns (may list all runs, and follow all of them)",
    scopeRuns === undefined && scopeRunsSubscribe !== undefined && "scopeRuns (may list all runs)",
    onTrigger === undefined && "onTrigger (may trigger every job, with any labels)",
  ].filter((gap) => gap !== false);
  if (gaps.length === 0) return null;
  return `createHandler(): hooks are missing in auth. Without them, whoever was authenticated is let through: ${
    gaps.join("; ")
  }`;
}
