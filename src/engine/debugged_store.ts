import process from "node:process";
import type { Fact } from "../model/fact.ts";
import type { Lease } from "../model/lease.ts";
import type { Store } from "../store/store.ts";
import type { ClaimRequest, ClaimResult } from "../store/claim.ts";
import { isoTime } from "../values/iso_time.ts";
import { toExplanation } from "./operate/explanation.ts";
import { ALL_VISIBLE } from "./operate/reason.ts";

/** What `HOLDFAST_DEBUG` can name, with commas between: what claims take and leave, leases, the facts of commits. */
const TOPICS = ["claim", "lease", "journal"];
const VARIABLE = "HOLDFAST_DEBUG";
const READING = /^(get|read|find|search|migrate|close|watch)/;
const PAGE_LENGTH = 262_144;

type Calls = Omit<Required<Store>, symbol>;
type After = {
  [Name in keyof Calls]?: (answer: Awaited<ReturnType<Calls[Name]>>, ...given: Parameters<Calls[Name]>) => unknown;
};

/** The value of `HOLDFAST_DEBUG`; empty if the process may not read it: nobody is asked for a permission. */
export function readDebugVariable(): string {
  const { permissions } = (globalThis as { Deno?: Partial<typeof Deno> }).Deno ?? {};
  const isGranted = permissions === undefined ||
    permissions.querySync({ name: "env", variable: VARIABLE }).state === "granted";
  return isGranted ? process.env[VARIABLE] ?? "" : "";
}

/** The store itself, or one that prints what its calls take, leave, renew, lose and commit. */
export function debuggedStore(
  store: Store,
  variable: string,
  print: (line: string) => void = (line) => console.error(line),
): Store {
  const topics = variable.split(",").map((topic) => topic.trim()).filter((topic) => topic !== "");
  if (topics.length === 0) return store;
  for (const topic of topics) {
    if (!TOPICS.includes(topic)) print(`${VARIABLE}: there is no "${topic}", but ${TOPICS.join(", ")}`);
  }
  const after: After = {};
  if (topics.includes("claim")) {
    after.claim = async (result, request) => {
      print(`holdfast claim: ${describeClaim(request, result)}`);
      for (const line of await describeLeft(store, request, result)) print(`holdfast claim: ${line}`);
    };
  }
  if (topics.includes("lease")) {
    const say = (what: string, leases: readonly Lease[]) => {
      for (const { runId, generation } of leases) {
        print(`holdfast lease: ${what} run ${runId}, generation ${generation}`);
      }
    };
    after.claim = note(after.claim, ({ claims }) => say("gave", claims.map(({ lease }) => lease)));
    after.renew = (until, renewals) => {
      for (const [at, { lease }] of renewals.entries()) {
        const end = until[at] ?? null;
        say(end === null ? "lost" : `renewed until ${isoTime(end)}`, [lease]);
      }
    };
    after.getLostLeases = (lost) => say("lost", lost);
    after.release = (_, lease) => say("released", [lease]);
    after.revoke = (_, leases) => say("revoked", leases);
  }
  const follow = topics.includes("journal") ? followJournal(store, print) : null;
  return new Proxy(store, {
    get: (target, name) => {
      const member = target[name as keyof Store];
      if (typeof member !== "function") return member;
      const call = member.bind(target) as (...given: never[]) => unknown;
      const then = after[name as "claim"] as ((answer: unknown, ...given: never[]) => unknown) | undefined; // its own
      const writes = follow !== null && typeof name === "string" && !READING.test(name);
      if (then === undefined && !writes) return call;
      return async (...given: never[]) => {
        if (writes) await follow().catch(() => {});
        const answer = await call(...given);
        try {
          await then?.(answer, ...given);
          if (writes) await follow();
        } catch (error) {
          print(`${VARIABLE}: ${error}`); // the call itself has succeeded
        }
        return answer;
      };
    },
  });
}

function note<A extends unknown[]>(first: ((...args: A) => unknown) | undefined, second: (...args: A) => unknown) {
  return async (...args: A) => {
    second(...args);
    await first?.(...args);
  };
}

function describeClaim(request: ClaimRequest, { claims, failed, cancelled, hasMore, nextTimerAt, now }: ClaimResult) {
  const { workerId, limit, holding, jobs, isAlone, triesHeld } = request;
  const kind = isAlone ? " claimed alone" : triesHeld ? " held ones" : "";
  const idsOf = (runs: readonly { id: string }[]) => runs.length === 0 ? "none" : runs.map(({ id }) => id).join(" ");
  return `worker ${workerId} holds ${holding.length}, asks for ${limit}${kind} of ` +
    `${jobs.map(({ name, version }) => `${name}@${version}`).join(" ")}; took ${
      idsOf(claims.map(({ run }) => run))
    }, ` +
    `failed ${idsOf(failed.map(({ run }) => run))}, cancelled ${idsOf(cancelled)}; ` +
    `${hasMore ? "more are due" : "no more is due"}, ` +
    (nextTimerAt === null ? "no timer" : `the next timer in ${nextTimerAt - now} ms`);
}

/** What each job of the request has left, if there was room for more: its first due run, and why it was not taken. */
async function describeLeft(store: Store, { jobs, limit, isAlone, triesHeld }: ClaimRequest, { claims }: ClaimResult) {
  if (claims.length >= limit || isAlone || triesHeld) return [];
  const lines: string[] = [];
  const known = new Set(jobs.map(({ name }) => name));
  for (const { jobName, byStatus, oldestDue } of (await store.getJobs([])).jobs) {
    if (!known.has(jobName) || byStatus.pending + byStatus.waiting === 0) continue;
    const left = `left job ${jobName} with ${byStatus.pending} pending, ${byStatus.waiting} waiting`;
    const found = oldestDue === null ? null : await store.getBlockers(oldestDue.runId);
    lines.push(found === null ? left : `${left}; first ${found.run.id}: ${toExplanation(found, ALL_VISIBLE).message}`);
  }
  return lines;
}

/** Prints the facts that were committed since the last call, by whomever; those before the first call are not shown. */
function followJournal(store: Store, print: (line: string) => void): () => Promise<void> {
  let place: Promise<number> | null = null;
  const read = async (from: number): Promise<number> => {
    const page = await store.readJournal(from, PAGE_LENGTH);
    if (page === null) return (await store.findCursor(null))!.position; // rows were removed meanwhile
    for (const { position, facts, at } of page.rows) {
      for (const [index, fact] of facts.entries()) {
        print(`holdfast journal: ${position - facts.length + 1 + index} at ${isoTime(at)} ${describeFact(fact)}`);
      }
    }
    const last = page.rows.at(-1)?.position ?? from;
    return last < page.end.position ? await read(last) : last;
  };
  return async () => {
    const end = () => store.findCursor(null).then((cursor) => cursor!.position);
    place = place === null ? end() : place.then(read, end);
    await place;
  };
}

function describeFact([run, kind, ...rest]: Fact): string {
  return `run ${run} ${kind}${rest.length === 0 ? "" : ` ${JSON.stringify(rest)}`}`;
}
