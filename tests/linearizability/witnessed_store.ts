import { LeaseLostError } from "../../src/model/error.ts";
import type { Lease } from "../../src/model/lease.ts";
import type { Claim } from "../../src/store/claim.ts";
import type { Store } from "../../src/store/store.ts";
import type { Fact } from "./facts.ts";

/** What the runs of what is examined are given. */
export interface GivenInput {
  /** The name of what is examined. */
  of: string;
  /** How many runs may hold a place together with it. */
  room?: number;
  /** Of the lease under which the body was called. */
  generation: number;
}

/**
 * The same store, which writes down what it answers about leases. Each body finds the generation of the lease under which
 * it was called in its input: it has no other way to know.
 */
export function witnessedStore(store: Store, write: (fact: Fact) => void): Store {
  const known = new Map<string, string>();
  let lastClaim = { id: "", from: 0 };

  const claim: Store["claim"] = async (request) => {
    // A repeated call may answer what the first one did.
    if (lastClaim.id !== request.claimId) lastClaim = { id: request.claimId, from: Date.now() };
    const { from } = lastClaim;
    const result = await store.claim(request);
    const to = Date.now();
    return {
      ...result,
      claims: result.claims.map((claim) => {
        const input: GivenInput | null = JSON.parse(claim.input ?? "null");
        if (input?.of === undefined) return claim;
        const { runId, generation } = claim.lease;
        known.set(runId, input.of);
        const slot = claim.slotAt === null ? null : Date.parse(claim.slotAt);
        const isFirst = claim.startDelayMs !== null;
        const until = claim.leaseExpiresAt;
        const { of, room = 1 } = input;
        write({ is: "claimed", of, run: runId, generation, from, to, until, room, isFirst, slot });
        return { ...claim, input: JSON.stringify({ ...input, generation }) } satisfies Claim;
      }),
    };
  };

  const renew: Store["renew"] = async (renewals, leaseMs) => {
    const from = Date.now();
    const ends = await store.renew(renewals, leaseMs);
    const to = Date.now();
    for (const [no, { lease: { runId, generation } }] of renewals.entries()) {
      const [of, until] = [known.get(runId), ends[no]];
      if (of !== undefined && typeof until === "number") {
        write({ is: "renewed", of, run: runId, generation, from, to, until });
      }
    }
    return ends;
  };

  const pause: Store["pause"] = async (lease, request) => {
    const of = known.get(lease.runId);
    if (of === undefined || !request.park) return await store.pause(lease, request);
    const about = { of, run: lease.runId, generation: lease.generation, id: crypto.randomUUID() };
    const parked = (isParked: boolean) => write({ is: "parked", ...about, isParked, to: Date.now() });
    write({ is: "parking", ...about, from: Date.now(), keeps: request.retryAt !== null });
    try {
      const result = await store.pause(lease, request);
      parked(result.parked);
      return result;
    } catch (error) {
      if (error instanceof LeaseLostError) parked(false);
      throw error;
    }
  };

  const finish = async (lease: Lease, ...others: [never, never]) => {
    await store.finish(lease, ...others);
    known.delete(lease.runId);
  };

  const own = { claim, renew, pause, finish };
  return new Proxy(store, {
    get(target, name) {
      if (name in own) return own[name as keyof typeof own];
      const member = Reflect.get(target, name, target);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}
