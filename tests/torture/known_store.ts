import { LeaseLostError } from "../../src/model/error.ts";
import type { Lease } from "../../src/model/lease.ts";
import type { Store } from "../../src/store/store.ts";
import type { Claim, ClaimResult } from "../../src/store/claim.ts";

/**
 * The same store, but each body is told the generation of the lease under which it was called, as a field `generation`
 * of its input: a job has no other way to know, and a ledger without it could prove nothing about zombies.
 *
 * @param onRefusal Hears of each write that was refused because its lease was lost.
 */
export function knownStore(store: Store, onRefusal: (lease: Lease, call: string) => void): Store {
  const claim = async (request: Parameters<Store["claim"]>[0]): Promise<ClaimResult> => {
    const result = await store.claim(request);
    return { ...result, claims: result.claims.map(withGeneration) };
  };
  const heard = (call: string, method: (...parameters: unknown[]) => unknown) => async (...parameters: unknown[]) => {
    try {
      return await method(...parameters);
    } catch (error) {
      if (error instanceof LeaseLostError) onRefusal(parameters[0] as Lease, call);
      throw error;
    }
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === "claim") return claim;
      const member = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      const method = member.bind(target);
      return ["saveStep", "pause", "finish"].includes(String(name)) ? heard(String(name), method) : method;
    },
  });
}

function withGeneration(claim: Claim): Claim {
  const input = { ...JSON.parse(claim.input!), generation: claim.lease.generation };
  return { ...claim, input: JSON.stringify(input) };
}
