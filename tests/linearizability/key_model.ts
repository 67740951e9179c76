import type { Model } from "./checker.ts";

/** A question about one idempotency key of a job whose runs wait for an answer, then complete. */
export type Ask =
  | { is: "trigger"; until: "forever" | "ended" }
  | { is: "read"; run: string }
  | { is: "signal"; run: string; signal: string }
  | { is: "cancel"; run: string }
  | { is: "delete"; run: string }
  | { is: "retrigger"; run: string };

/** An answer: its status, and what counts of its body. */
export interface Told {
  /** The status of HTTP. */
  status: number;
  /** The run that a trigger or a retrigger answers. */
  run?: string;
  /** The `disposition` of a trigger or a signal. */
  disposition?: string;
  /** The status of a run that was read. */
  phase?: string;
}

/** A run: whether it has ended, which signal it has taken, and its newest retry. */
interface KeyRun {
  id: string;
  ended: "completed" | "cancelled" | null;
  signal: string | null;
  retry: string | null;
}

/** The run that has the key, and all runs that there are. */
interface KeyState {
  holder: string | null;
  runs: readonly KeyRun[];
  /** How many runs were made whose ids nobody was told. */
  unnamed: number;
}

/**
 * What the service does with one idempotency key: triggers, and what is done to the runs that come of them. A run that was
 * signalled completes at some moment afterwards, which is seen by what is told later.
 */
export const KEY_MODEL: Model<KeyState, Ask, Told> = {
  first: { holder: null, runs: [], unnamed: 0 },
  key: (state) => JSON.stringify(state),
  isRead: ({ is }) => is === "read",
  next(state, ask, told) {
    const asked = ask.is === "trigger" ? [state] : named(state, ask.run);
    const states = told?.run === undefined ? asked : asked.flatMap((one) => named(one, told.run!));
    if (ask.is === "trigger") return states.flatMap((one) => trigger(one, ask.until, told));
    return states.flatMap((one) => {
      const found = one.runs.find(({ id }) => id === ask.run);
      if (found === undefined) return told === null || told.status === 404 ? [one] : [];
      return formsOf(found).flatMap((run) => act(replace(one, run), run, ask, told));
    });
  },
};

function act(state: KeyState, run: KeyRun, ask: Exclude<Ask, { is: "trigger" }>, told: Told | null): KeyState[] {
  const answers = (status: number, after: KeyState = state) => told === null || told.status === status ? [after] : [];
  switch (ask.is) {
    case "read": {
      if (told === null) return [state];
      const isRight = run.ended === null
        ? !["completed", "cancelled", "failed"].includes(told.phase!)
        : told.phase === run.ended;
      return told.status === 200 && isRight ? [state] : [];
    }
    case "signal": {
      if (run.signal === ask.signal) return told === null || told.disposition === "duplicate" ? [state] : [];
      if (run.signal !== null || run.ended !== null) return answers(409);
      return told === null || told.disposition === "accepted" ? [replace(state, { ...run, signal: ask.signal })] : [];
    }
    case "cancel":
      return run.ended === null ? answers(200, replace(state, { ...run, ended: "cancelled" })) : answers(409);
    case "delete":
      return run.ended === null ? answers(409) : answers(200, {
        ...state,
        holder: state.holder === run.id ? null : state.holder,
        runs: state.runs.filter(({ id }) => id !== run.id),
      });
    case "retrigger":
      return run.ended === null ? answers(409) : retrigger(state, run, told);
  }
}

function retrigger(state: KeyState, run: KeyRun, told: Told | null): KeyState[] {
  const newest = state.runs.find(({ id }) => id === run.retry);
  if (newest === undefined) return retryOf(state, run, told);
  return formsOf(newest).flatMap((form) => {
    const now = replace(state, form);
    if (form.ended !== null) return retryOf(now, run, told);
    return told === null || (told.status === 200 && told.run === form.id) ? [now] : [];
  });
}

function retryOf(state: KeyState, run: KeyRun, told: Told | null): KeyState[] {
  if (told !== null && told.status !== 200) return [];
  return added(state, told, (after, id) => replace(after, { ...run, retry: id }));
}

function trigger(state: KeyState, until: "forever" | "ended", told: Told | null): KeyState[] {
  const holder = state.runs.find(({ id }) => id === state.holder);
  if (holder === undefined) return create(state, told);
  const retry = until === "ended" ? state.runs.find(({ id }) => id === holder.retry) : undefined;
  return formsOf(retry ?? holder).flatMap((run) => {
    const now = replace(state, run);
    if (until === "ended" && run.ended !== null) return create(now, told);
    return told === null || (told.disposition === "idempotent" && told.run === run.id) ? [now] : [];
  });
}

function create(state: KeyState, told: Told | null): KeyState[] {
  if (told !== null && told.disposition !== "created") return [];
  return added(state, told, (after, id) => ({ ...after, holder: id }));
}

/** A new run, with the id that was told. */
function added(state: KeyState, told: Told | null, then: (after: KeyState, id: string) => KeyState): KeyState[] {
  const id = told?.run ?? `unnamed ${state.unnamed}`;
  if (state.runs.some((run) => run.id === id)) return [];
  const runs = [...state.runs, { id, ended: null, signal: null, retry: null }];
  return [then({ ...state, runs, unnamed: state.unnamed + (told === null ? 1 : 0) }, id)];
}

/** What a run may be by now: one that was signalled completes by itself. */
function formsOf(run: KeyRun): KeyRun[] {
  return run.signal !== null && run.ended === null ? [run, { ...run, ended: "completed" }] : [run];
}

/** The states in which a run has this id: it may be one whose id nobody was told before. */
function named(state: KeyState, id: string): KeyState[] {
  if (state.runs.some((run) => run.id === id)) return [state];
  const nameless = state.runs.filter((run) => run.id.startsWith("unnamed "));
  return [
    state,
    ...nameless.map(({ id: old }) => {
      const rename = <T extends string | null>(name: T) => name === old ? id : name;
      const runs = state.runs.map((run) => ({ ...run, id: rename(run.id), retry: rename(run.retry) }));
      return { ...state, holder: rename(state.holder), runs };
    }),
  ];
}

function replace(state: KeyState, run: KeyRun): KeyState {
  return { ...state, runs: state.runs.map((one) => one.id === run.id ? run : one) };
}
