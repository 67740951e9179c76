import type { BulkFilter } from "../../engine/bulk/bulk_selection.ts";
import type { Json } from "../../values/json.ts";
import { namesOf } from "../../values/option_names.ts";
import { propertyOf } from "../../values/unknown_values.ts";
import type { BulkOperation, Coalesce, Labels, ListFilter, Run, RunFilter } from "../../model/run.ts";
import type { Signal, Wait } from "../../model/wait.ts";

/** The operations on a run: `read` covers the run itself and its logs, `waits` one wait or all, `messages` its messages. */
export type RunOperation =
  | "read"
  | "subscribe"
  | "steps"
  | "retrigger"
  | "cancel"
  | "resume"
  | "delete"
  | "waits"
  | "signal"
  | "messages"
  | "send";

/**
 * The operations that do not concern one run. `stats`, `jobs`, `workers`, `health`, `metrics` and `schedules` show what
 * they say. `tick` executes what is due, for hosts that call it. `pause` and `resume` change a job (`jobName`) or a schedule (`scheduleName`), `trigger` triggers a schedule,
 * and `bulk` cancels, retriggers, resumes or deletes many runs. `docs` and `ui` show documents and pages. `debug` adds what
 * concerns one run, but not its tenant: workers and stacks.
 */
export type Operation =
  | "stats"
  | "jobs"
  | "workers"
  | "health"
  | "metrics"
  | "docs"
  | "ui"
  | "debug"
  | "schedules"
  | "pause"
  | "resume"
  | "trigger"
  | "bulk"
  | "tick";

/** What a host can open to callers that are not authenticated. */
export type OpenPart = "health" | "ui";

const OPEN_PARTS: readonly OpenPart[] = ["health", "ui"];

/** An operation that does not concern one run. */
export interface RequestedOperation {
  /** What is to be done. */
  readonly operation: Operation;
  /** The name of the job, as the client sent it, if it did; there may be no such job. */
  readonly jobName?: string;
  /** The name of the schedule, as the client sent it; there may be no such schedule. */
  readonly scheduleName?: string;
  /** With `bulk`: what is to be done with each run. */
  readonly runOperation?: BulkOperation;
  /** With `bulk`: the filter, as the client sent it; left out if the client names the runs. */
  readonly filter?: Readonly<BulkFilter>;
}

/** A link by which somebody is about to answer a wait. */
export interface SeenLink {
  /** Who got it; `null`: nobody is named. */
  readonly for: string | null;
  /** The labels of the actions that it offers; `null`: all. */
  readonly actions: readonly string[] | null;
  /** When it expires: ISO 8601 in UTC. */
  readonly expiresAt: string;
}

/** A trigger, in the form that is about to be stored. */
export interface RequestedTrigger {
  /** The name of an existing job. */
  readonly jobName: string;
  /** The input as given: what is stored and shown. It fits the job's schema. */
  readonly input: Json;
  /**
   * What the job receives: the input as the schema parsed it. Check `parsed` when the rule is about what the job does
   * (a schema may fill in, rename and leave out fields), and `input` when it is about what is stored and shown.
   */
  readonly parsed: Json;
  /** The labels; empty if none were given. */
  readonly labels: Labels;
  /** The key as the client sent it, if it did. */
  readonly idempotencyKey?: string;
  /** Which runs with that key count, if not all of them: milliseconds since their trigger, or as `TriggerOptions` says. */
  readonly idempotencyUntil?: "ended" | "failed" | number;
  /**
   * The key as the client sent it, if it did. Without `tenant`, runs of all callers with one key wait for each other.
   */
  readonly concurrencyKey?: string;
  /** The coalesce mode, if the client sent one. */
  readonly coalesce?: Coalesce;
  /** Before which instant the run does not start, as the client sent it, if it did: ISO 8601. */
  readonly startAt?: string;
  /** After how many milliseconds the run starts, if the client said so. */
  readonly delay?: number;
  /** The priority that the client asked for, if it did: it sets the run before those of other callers. */
  readonly priority?: number;
  /** Within how many milliseconds the run has to start, if the client said so. */
  readonly startWithin?: number;
  /** Within how many milliseconds after its start the run has to end, if the client said so. */
  readonly finishWithin?: number;
}

/** A message that is about to be stored. */
export interface RequestedMessage {
  /** Its id: as the client sent it, or a new one. */
  readonly id: string;
  /** Its name: one that its job takes. */
  readonly name: string;
  /** Its payload as given. It fits the schema of the job. */
  readonly payload: Json;
}

/**
 * The authorization hooks of a handler. `Context` is what `authenticate` returns: the first argument of every other
 * hook.
 *
 * A hook refuses by throwing a `Response`, which is sent unchanged. Any other thrown value leads to a 500, and so does
 * taking more than 30 seconds, or returning what must be thrown (a `Response`, an `Error`, or `false`, also by
 * `authenticate`); the operation is then not performed. Runs, waits, signals and triggers are passed frozen: what is
 * stored is what the hook has checked.
 */
export interface HandlerAuth<Context> {
  /**
   * Called first, on any path, for every request whose URL is valid and whose host is allowed. Write it before the
   * other hooks: they get their types from it. To read the body, use `request.clone()`; the handler's limits do not apply to it.
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
   * Names who acts: 1 to 255 characters without control characters, or `null`. It is recorded with what the request does
   * (`by` of the engine's methods), and shown to all who may see the run. Called once for a request that changes something,
   * when the other hooks have let it pass. Anything else that it returns leads to a 500, and nothing is done. Return an id
   * rather than a name: it is deleted with its run only. Default: nobody is recorded.
   */
  readonly actor?: (context: NoInfer<Context>) => string | null | Promise<string | null>;
  /**
   * Called before a run is triggered, after all other checks of the request. Without it, every authenticated caller
   * may trigger every job with any labels.
   *
   * If it returns an object, that is a `TriggerKeys`: what it has is set instead of what the client has asked
   * for, since a client could leave its key out, and take every slot. With `tenant`, the concurrency key is the tenant's
   * own.
   */
  readonly onTrigger?: (context: NoInfer<Context>, trigger: RequestedTrigger) => unknown;
  /**
   * Called before a run is shown or changed, and before a trigger returns an existing run (operation `read`). Without
   * it, every authenticated caller may do all that; only `/waits`, `/wait`, `/signal`, `/messages` and `/send` are refused.
   */
  readonly onRunAccess?: (
    context: NoInfer<Context>,
    run: Readonly<Run>,
    access: { readonly operation: RunOperation },
  ) => unknown;
  /**
   * Called before an operation that does not concern one run: before numbers, jobs, workers, health, metrics or
   * schedules are shown, before a job or a schedule is paused or resumed, before a schedule is triggered (`onTrigger` is
   * not called then), and before many runs are cancelled, retriggered or deleted (`scopeRuns` then restricts the filter,
   * and `onRunAccess` is called for each run). Without it, all of these are refused.
   */
  readonly onOperate?: (context: NoInfer<Context>, access: RequestedOperation) => unknown;
  /** Called after `onRunAccess` before a signal is stored, unless it was accepted before. */
  readonly onSignal?: (
    context: NoInfer<Context>,
    run: Readonly<Run>,
    wait: Readonly<Wait>,
    signal: Readonly<Signal>,
  ) => unknown;
  /**
   * Called after `onRunAccess` before a message is stored, unless it was accepted before. `run` is `null` if a run is started
   * for it: then `onTrigger` was called before.
   */
  readonly onSend?: (
    context: NoInfer<Context>,
    run: Readonly<Run> | null,
    message: Readonly<RequestedMessage>,
  ) => unknown;
  /**
   * Returns the filter of the runs that may be listed. It can only narrow what the client asks for: both filters
   * apply. Its own labels come last: `{ ...filter, labels: { ...filter.labels, org } }`. Without it, all runs may be
   * listed.
   *
   * Runs are looked up by what it adds, so that the time a list takes reveals nothing about other runs. If a client has
   * asked for all of that already, it is called a second time, with neither labels nor jobs.
   */
  readonly scopeRuns?: (
    context: NoInfer<Context>,
    filter: Readonly<RunFilter>,
  ) => Readonly<RunFilter> | Promise<Readonly<RunFilter>>;
  /**
   * Returns the filter of the runs that the stream of all runs shows. Default: `scopeRuns`, of whose result only jobs
   * and labels count.
   */
  readonly scopeRunsSubscribe?: (
    context: NoInfer<Context>,
    filter: Readonly<ListFilter>,
  ) => Readonly<ListFilter> | Promise<Readonly<ListFilter>>;
  /**
   * Called before a question is shown or answered by a link (`links` of the handler), which nobody is authenticated for:
   * the link is the right to answer. Throw a `Response` to refuse, because the one that it was made for has left. Default:
   * a valid link is enough.
   */
  readonly onLink?: (link: SeenLink, run: Readonly<Run>, wait: Readonly<Wait>) => unknown;
  /**
   * What is shown without `authenticate` and `onOperate`: `health` shows the status of the process alone, `ui` the files
   * of the dashboard, which hold no data. Default: nothing.
   */
  readonly open?: readonly OpenPart[];
}

/** The name of a hook. */
export type HookName = Exclude<keyof HandlerAuth<unknown>, "open">;

const HOOKS = Object.keys(
  namesOf<HookName>()(
    "authenticate tenant actor onTrigger onRunAccess onOperate onSignal onSend scopeRuns scopeRunsSubscribe onLink",
  ),
);

/** The names of all fields of `auth`. */
export const AUTH_FIELDS: readonly string[] = [...HOOKS, "open"];

/**
 * Checks hooks, and copies them, so that none can be removed later.
 *
 * @throws {TypeError} There is no `authenticate`, a hook is not a function, or `open` has an unknown part.
 */
export function checkAuth(auth: unknown): HandlerAuth<unknown> {
  if (typeof auth !== "object" || auth === null) throw new TypeError("auth must be an object of functions");
  const given = HOOKS.flatMap((name) => {
    const hook = propertyOf(auth, name);
    if (hook === undefined && name !== "authenticate") return [];
    if (typeof hook !== "function") throw new TypeError(`auth.${name} must be a function`);
    return [[name, hook.bind(auth)]];
  });
  return { ...Object.fromEntries(given), open: checkOpen(propertyOf(auth, "open")) };
}

function checkOpen(open: unknown = []): readonly OpenPart[] {
  const isOpenPart = (part: unknown): part is OpenPart => OPEN_PARTS.some((known) => known === part);
  if (Array.isArray(open) && open.every(isOpenPart)) return [...open];
  throw new TypeError(`auth.open must be an array of ${OPEN_PARTS.map((part) => `"${part}"`).join(" and ")}`);
}

/** Describes what every authenticated caller may do because hooks are missing; `null` if nothing. */
export function describeGaps(
  { onTrigger, onRunAccess, scopeRuns, scopeRunsSubscribe }: HandlerAuth<unknown>,
): string | null {
  const gaps = [
    onRunAccess === undefined &&
    "onRunAccess (may read, follow, retrigger, cancel, resume and delete every run; waits, signals and messages are refused)",
    scopeRuns === undefined && scopeRunsSubscribe === undefined &&
    "scopeRuns (may list all runs, and follow all of them)",
    scopeRuns === undefined && scopeRunsSubscribe !== undefined && "scopeRuns (may list all runs)",
    onTrigger === undefined && "onTrigger (may trigger every job, with any labels)",
  ].filter((gap) => gap !== false);
  if (gaps.length === 0) return null;
  return `createHandler(): hooks are missing in auth. Without them, every authenticated caller has access: ${
    gaps.join("; ")
  }`;
}
