import { actorOf, encodeOrigin } from "../../../src/model/origin.ts";
import { over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of who did something. */
export const ACTOR_MUTANTS: readonly Mutant[] = [
  {
    name: "who has sent a signal is not kept",
    rule: "what somebody does is kept with who did it",
    client: overClient((store) => ({ signal: (waitId, signal) => store.signal(waitId, signal) })),
  },
  {
    name: "who has cancelled a run is not kept",
    rule: "what somebody does is kept with who did it",
    client: overClient((store) => ({
      cancel: (runId, requestId, execution) => store.cancel(runId, requestId.split("\n")[0]!, execution),
    })),
  },
  {
    name: "who sends a signal again is said to have sent it",
    rule: "the first one counts",
    plan: (plan) => ({
      ...plan,
      requests: plan.requests.flatMap((planned) =>
        planned.request.ask === "signal"
          ? [planned, { ...planned, process: planned.process + 1, manner: null }]
          : [planned]
      ),
    }),
    store: over((store) => ({
      signal: async (waitId, signal, trace = null) => {
        const outcome = await store.signal(waitId, signal, trace);
        outcome.wait.signalledBy = actorOf(trace);
        return outcome;
      },
    })),
  },
  {
    name: "a retry is said to be triggered by who triggered the first run",
    rule: "who retries a run has triggered the retry",
    store: over((store) => {
      const firsts = new Map<string, string | null>();
      return {
        enqueue: async (runs) => {
          const enqueued = await store.enqueue(runs.map((run) => {
            const first = run.retriggerOf === null ? undefined : firsts.get(run.retriggerOf.runId);
            return first === undefined ? run : { ...run, trace: encodeOrigin(null, first) };
          }));
          for (const { run: { id, triggeredBy } } of enqueued) firsts.set(id, triggeredBy);
          return enqueued;
        },
      };
    }),
  },
  {
    name: "all that comes over HTTP is said to be done by the service",
    rule: "over HTTP the service says who acts",
    auth: { actor: () => "the service" },
  },
];

/** Bugs of links. */
export const LINK_MUTANTS: readonly Mutant[] = [
  {
    name: "the answer of a link has the id of what it says",
    rule: "a link answers once, as itself",
    client: overClient((store) => ({
      signal: (waitId, signal, trace) => {
        const isOfLink = signal.signalId.startsWith("link/");
        const signalId = isOfLink ? `link/${JSON.stringify(signal.payload)}!` : signal.signalId;
        return store.signal(waitId, { ...signal, signalId }, trace);
      },
    })),
  },
  {
    name: "nobody is said to have answered by a link",
    rule: "who got a link has answered by it",
    links: (links) => ({
      ...links,
      read: async (token) => {
        const link = await links.read(token);
        return link === null ? null : { ...link, for: null };
      },
    }),
  },
  {
    name: "a link never expires",
    rule: "a link that has expired does nothing",
    links: (links) => ({
      ...links,
      read: async (token) => {
        const link = await links.read(token);
        return link === null ? null : { ...link, expiresAt: "9999-01-01T00:00:00.000Z" };
      },
    }),
  },
  {
    name: "who opens a link has answered",
    rule: "to open a link does nothing",
    fetch: (fetch) => async (request) => {
      if (request.method === "GET" && new URL(request.url).pathname.endsWith("/link")) {
        await fetch(new Request(request.url, { method: "POST", body: new URLSearchParams({ action: "answer 0" }) }));
      }
      return await fetch(request);
    },
  },
  {
    name: "a link answers as the first link that was opened",
    rule: "who got a link has answered by it",
    links: (links) => {
      let first: string | null = null;
      return {
        ...links,
        read: async (token) => {
          const link = await links.read(token);
          first ??= link?.signalId ?? null;
          return link === null || first === null ? link : { ...link, signalId: first };
        },
      };
    },
  },
];
