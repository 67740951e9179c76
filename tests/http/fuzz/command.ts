import fc from "fast-check";
import type { Json } from "../../../src/values/json.ts";
import { UNKNOWN } from "../../support/http/tenants.ts";
import type { Action, FollowQuery, ListQuery, RunRequest, TriggerBody } from "./action.ts";
import { REVIEW_MS } from "./jobs.ts";
import { LEASE_MS, type Model } from "./model.ts";
import { REFUSED_PAYLOAD, type Tenant, TENANTS } from "./tenants.ts";

/**
 * What is to be done, before it is known to what: runs and waits are named by numbers, 0 for the latest and `null` for
 * one that does not exist, so that a list of commands keeps a meaning when others are left out of it.
 */
export type Command = RequestCommand | EngineCommand;

/** A command that becomes a request. */
export type RequestCommand =
  | TriggerCommand & { do: "trigger" }
  | { do: "ask"; kind: RunRequest; run: Which; by: Asker }
  | { do: "retrigger"; run: Which; by: Asker; from: "start" | "failure" | null }
  | WaitCommand & { do: "wait" }
  | WaitCommand & { do: "signal"; signalId: string; payload: Json }
  | { do: "runs"; by: Tenant; query: ListQuery };

/** A command that becomes something else. */
export type EngineCommand =
  | { do: "house"; body: TriggerBody }
  | { do: "listen"; by: Tenant; query: FollowQuery }
  | { do: "work" }
  | { do: "crash" }
  | { do: "pass"; ms: number };

/** Who asks: the owner of what is asked for is found out when the time has come. */
type Asker = Tenant | "owner";

/** Which of those that there are. */
type Which = number | null;

interface WaitCommand {
  wait: Which;
  /** The run under which it is looked for. */
  ofRun: Which | "its own";
  by: Asker;
}

interface TriggerCommand {
  by: Tenant;
  labels: "own" | "own and team" | "foreign" | "none";
  body: Omit<TriggerBody, "labels">;
}

/** Finds out what a command means as things stand. */
export function resolveCommand(command: Command, model: Model): Action {
  switch (command.do) {
    case "trigger":
      return { kind: "trigger", by: command.by, body: { ...command.body, ...labelsOf(command) } };
    case "house":
      return { kind: "house", body: command.body };
    case "ask":
      return { kind: command.kind, ...resolveRun(command, model) };
    case "retrigger":
      return { kind: "retrigger", from: command.from, ...resolveRun(command, model) };
    case "wait":
      return { kind: "wait", ...resolveWait(command, model) };
    case "signal": {
      const { signalId, payload } = command;
      return { kind: "signal", signalId, payload, ...resolveWait(command, model) };
    }
    default: {
      const { do: kind, ...rest } = command;
      return { kind, ...rest } as Action; // nothing in these has to be found out
    }
  }
}

function labelsOf({ by, labels }: TriggerCommand): { labels?: Record<string, string> } {
  const foreign = by === "a" ? "b" : "a";
  switch (labels) {
    case "own":
      return { labels: { org: by } };
    case "own and team":
      return { labels: { org: by, team: "x", ["__proto__"]: "x" } }; // the last one is a name like any other
    case "foreign":
      return { labels: { org: foreign } };
    case "none":
      return {};
  }
}

function resolveRun({ run, by }: { run: Which; by: Asker }, model: Model): { runId: string; by: Tenant } {
  const runId = pick(model.runIds, run) ?? UNKNOWN;
  return { runId, by: resolveAsker(by, runId, model) };
}

function resolveWait({ wait, ofRun, by }: WaitCommand, model: Model): { runId: string; waitId: string; by: Tenant } {
  const { runId: own, waitId } = pick(model.waitIds, wait) ?? { runId: UNKNOWN, waitId: UNKNOWN };
  const runId = ofRun === "its own" ? own : pick(model.runIds, ofRun) ?? UNKNOWN;
  return { runId, waitId, by: resolveAsker(by, runId, model) };
}

function pick<T>(items: readonly T[], which: Which): T | undefined {
  return which === null || items.length === 0 ? undefined : items.at(-1 - which % items.length);
}

function resolveAsker(by: Asker, runId: string, model: Model): Tenant {
  if (by !== "owner") return by;
  return model.find(runId)?.labels.org === "b" ? "b" : "a";
}

const tenant = fc.constantFrom(...TENANTS);
const asker = fc.constantFrom<Asker>("owner", "owner", "owner", "a", "b");
const anyOf = (count: number) =>
  fc.oneof({ weight: 15, arbitrary: fc.nat({ max: count - 1 }) }, { weight: 1, arbitrary: fc.constant(null) });

const keys = fc.oneof(
  { weight: 3, arbitrary: fc.constant({}) },
  { weight: 1, arbitrary: fc.record({ concurrencyKey: fc.constantFrom("line 1", "line 2") }) },
  {
    weight: 4,
    arbitrary: fc.record({
      concurrencyKey: fc.constantFrom("line 1", "line 1", "line 2"),
      coalesce: fc.constantFrom("skip", "queue", "active", "active"),
    }),
  },
);

const aBody: fc.Arbitrary<Omit<TriggerBody, "labels">> = fc.record({
  job: fc.oneof(
    { weight: 6, arbitrary: fc.constant({ jobName: "approval", input: {} }) },
    { weight: 3, arbitrary: fc.record({ jobName: fc.constantFrom("echo", "fail"), input: fc.constant({ n: 1 }) }) },
    {
      weight: 2,
      arbitrary: fc.record({
        jobName: fc.constant("strict"),
        input: fc.constantFrom<Json[]>({}, { n: 2 }, { n: "x" }),
      }),
    },
    { weight: 1, arbitrary: fc.constant({ jobName: "unknown", input: {} }) },
  ),
  once: fc.constantFrom<{ idempotencyKey?: string }>({}, {}, { idempotencyKey: "key 1" }, { idempotencyKey: "key 2" }),
  keys,
}).map(({ job, once, keys }) => ({ ...job, ...once, ...keys }));

const aTrigger = fc.record({
  do: fc.constant("trigger" as const),
  by: tenant,
  labels: fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom("own" as const, "own and team" as const) },
    { weight: 1, arbitrary: fc.constantFrom("foreign" as const, "none" as const) },
  ),
  body: fc.oneof(
    { weight: 15, arbitrary: aBody },
    { weight: 1, arbitrary: fc.constant({ jobName: "unknown", input: { n: "x" }, coalesce: "skip" as const }) },
  ),
});

const labels = fc.array(
  fc.constantFrom<[string, string]>(["org", "a"], ["org", "b"], ["team", "x"], ["team", "y"], ["__proto__", "x"]),
  { maxLength: 2, size: "xsmall" },
);
const jobNames = fc.array(fc.constantFrom("approval", "echo", "fail", "strict", "unknown"), {
  maxLength: 2,
  size: "xsmall",
});
const STATUSES = ["pending", "leased", "running", "waiting", "completed", "failed", "cancelled"];

const aList = fc.record({
  do: fc.constant("runs" as const),
  by: tenant,
  query: fc.record({
    jobName: jobNames,
    status: fc.array(fc.constantFrom(...STATUSES, "unknown"), { maxLength: 3, size: "xsmall" }),
    labels: labels,
    limit: fc.constantFrom(null, null, 0, 1, 2, 3, 1_000, 1_001),
    offset: fc.constantFrom(null, null, 0, 1, 2, 50),
  }),
});

/**
 * Any request of a tenant that is answered at once.
 *
 * @param among How many runs and waits, from the latest on, it may be about.
 */
export function aRequestCommand({ among }: { among: number }): fc.Arbitrary<RequestCommand> {
  const run = anyOf(among);
  const ofWait = {
    wait: anyOf(among),
    ofRun: fc.oneof({ weight: 9, arbitrary: fc.constant("its own" as const) }, { weight: 1, arbitrary: run }),
    by: asker,
  };
  return fc.oneof(
    { weight: 11, arbitrary: aTrigger },
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant("signal" as const),
        ...ofWait,
        signalId: fc.constantFrom("signal 1", "signal 1", "signal 1", "signal 2"),
        payload: fc.constantFrom<Json[]>(null, null, null, { a: 1, b: [2] }, { b: [2], a: 1 }, REFUSED_PAYLOAD),
      }),
    },
    {
      weight: 7,
      arbitrary: fc.record({
        do: fc.constant("ask" as const),
        kind: fc.constantFrom<RunRequest[]>("run", "steps", "waits", "logs", "cancel", "cancel", "delete", "delete"),
        run,
        by: asker,
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant("retrigger" as const),
        run,
        by: asker,
        from: fc.constantFrom(null, "start", "failure"),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("wait" as const), ...ofWait }) },
    { weight: 2, arbitrary: aList },
  );
}

const aWork = fc.constant({ do: "work" as const });
const aCrash = fc.constant({ do: "crash" as const });
const aPass = fc.record({
  do: fc.constant("pass" as const),
  ms: fc.constantFrom(1, REVIEW_MS - LEASE_MS, LEASE_MS - 1, REVIEW_MS - 1, REVIEW_MS),
});

/** Anything that can be done to the service, or happen to it. */
export const aCommand: fc.Arbitrary<Command> = fc.oneof(
  { weight: 16, arbitrary: aRequestCommand({ among: 10 }) },
  { weight: 5, arbitrary: aWork },
  { weight: 2, arbitrary: aPass },
  { weight: 1, arbitrary: aCrash },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("ask" as const),
      kind: fc.constant("subscribe" as const),
      run: anyOf(10),
      by: asker,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("listen" as const),
      by: tenant,
      query: fc.record({ jobName: jobNames, labels: labels }),
    }),
  },
  {
    weight: 1,
    // In process the stored key of a tenant can be given: its run is still not the tenant's.
    arbitrary: fc.tuple(aBody, fc.boolean()).map(([body, isFull]) => ({
      do: "house" as const,
      body: isFull && body.idempotencyKey !== undefined
        ? { ...body, idempotencyKey: `a/${body.idempotencyKey}` }
        : body,
    })),
  },
);

/** The same, where all runs have one concurrency key: whether somebody holds it or not is what matters. */
export const aLineCommand: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant("trigger" as const),
      by: tenant,
      labels: fc.constant("own" as const),
      body: fc.record({
        jobName: fc.constantFrom("approval", "approval", "echo"),
        coalescing: fc.constantFrom<Pick<TriggerBody, "coalesce">[]>(
          {},
          { coalesce: "skip" },
          { coalesce: "active" },
          { coalesce: "active" },
        ),
      }).map(({ jobName, coalescing }) => ({ jobName, input: {}, concurrencyKey: "line 1", ...coalescing })),
    }),
  },
  { weight: 4, arbitrary: aCrash },
  { weight: 4, arbitrary: aWork },
  { weight: 2, arbitrary: aPass },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("ask" as const),
      kind: fc.constantFrom("cancel" as const, "cancel" as const, "delete" as const),
      run: anyOf(3),
      by: fc.constant("owner" as const),
    }),
  },
);
