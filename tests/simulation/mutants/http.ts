import { Chance } from "../../support/chance.ts";
import { ORGS } from "../plan.ts";
import { overClient, withStreams } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of the handler, its hooks and its streams. */
export const HTTP_MUTANTS: readonly Mutant[] = [
  {
    name: "nobody asks whose run it is",
    rule: "a tenant sees nothing of another's run",
    auth: { onRunAccess: () => {} },
  },
  {
    name: "nobody asks for whom a run is triggered",
    rule: "a tenant triggers its own runs",
    auth: { onTrigger: () => {} },
  },
  {
    name: "all tenants share their keys",
    from: 10,
    rule: "a tenant's keys are its own",
    auth: { tenant: () => "everybody" },
  },
  {
    name: "a list shows all tenants' runs",
    rule: "a tenant sees nothing of another's run",
    auth: { scopeRuns: (_org, filter) => filter },
  },
  {
    name: "a stream leaves out a step",
    from: 12,
    rule: "a stream tells each thing once",
    fetch: withStreams((messages, chance) =>
      messages.filter((message) => !message.includes('"step:complete"') || chance.happens(0.9))
    ),
  },
  {
    name: "a stream tells a thing twice",
    rule: "a stream tells each thing once",
    fetch: withStreams((messages, chance) =>
      messages.flatMap((message) => chance.happens(0.01) ? [message, message] : [message])
    ),
  },
  {
    name: "a stream ends before its run",
    rule: "a stream goes on to the last event",
    fetch: withStreams((messages) => messages.filter((message) => !message.includes('"run:fail"'))),
  },
  {
    name: "a client is told that a busy store is broken",
    rule: "who is to come back is told so",
    fetch: (fetch) => async (request) => {
      const response = await fetch(request);
      return response.status === 503 ? Response.json({ error: "Broken", code: "internal" }, { status: 500 }) : response;
    },
  },
  {
    name: "a cancel is refused without need",
    rule: "the service does what was asked, or says why not",
    client: overClient((store) => {
      const chance = new Chance(7);
      return { cancel: (...parameters) => chance.happens(0.5) ? Promise.resolve(null) : store.cancel(...parameters) };
    }),
  },
  {
    name: "what a stranger asks is done, and denied",
    rule: "a stranger changes nothing",
    fetch: (fetch) => async (request) => {
      const { pathname } = new URL(request.url);
      if (request.method !== "GET" && !pathname.endsWith("/trigger")) await fetch(asOther(request));
      return await fetch(request);
    },
  },
  {
    name: "a stranger's trigger is carried out, and denied",
    rule: "a tenant triggers its own runs",
    fetch: (fetch) => async (request) => {
      const response = await fetch(request.clone());
      if (new URL(request.url).pathname.endsWith("/trigger") && response.status === 403) await fetch(asOther(request));
      return response;
    },
  },
  {
    name: "a tenant is turned away from its own runs",
    rule: "the service does what was asked, or says why not",
    fetch: (fetch) => (request) =>
      new URL(request.url).pathname.endsWith("/waits")
        ? Promise.resolve(Response.json({ error: "There is no such run", code: "not_found" }, { status: 404 }))
        : fetch(request),
  },
  {
    name: "nothing is shown of a run's steps",
    rule: "nothing is left out of a list",
    fetch: (fetch) => async (request) => {
      const response = await fetch(request);
      return new URL(request.url).pathname.endsWith("/steps") && response.ok ? Response.json([]) : response;
    },
  },
  {
    name: "a list of runs is empty",
    rule: "nothing is left out of a list",
    fetch: (fetch) => async (request) => {
      const response = await fetch(request);
      const isList = new URL(request.url).pathname.endsWith("/runs");
      return isList && response.ok ? Response.json({ runs: [], total: 0 }) : response;
    },
  },
  {
    name: "a stream of all runs tells no ends",
    rule: "a stream of all runs tells how each ends",
    fetch: withStreams(
      (messages) => messages.filter((message) => !message.includes('"run:complete"')),
      "/runs/subscribe",
    ),
  },
  {
    name: "a stream leaves out a step that has failed",
    rule: "a stream tells each thing once",
    fetch: withStreams((messages) => messages.filter((message) => !message.includes('"step:fail"')), "/subscribe"),
  },
];

/** A request that seems to come from the other tenant. */
function asOther(request: Request): Request {
  const headers = new Headers(request.headers);
  headers.set("x-org", ORGS.find((org) => org !== headers.get("x-org"))!);
  return new Request(request.clone(), { headers });
}
