import { Chance } from "../support/chance.ts";
import { type Plan, PROCESS_NAMES, type Request, TROUBLE_MS } from "./plan.ts";

/** Adds people without an account, who answer waits by links. The rest of the plan stays the same. */
export function addLinks(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "links");
  const requests = Array.from({ length: 10 + chance.int(10) }, (): Plan["requests"][number] => {
    const request: Request = {
      ask: "link",
      which: chance.next(),
      payload: chance.int(2),
      scans: chance.int(3),
      readMs: chance.pick([0, 0, 50, 500]),
      isOld: chance.happens(0.5),
      expiresInMs: chance.pick([null, null, null, 200, 2_000]),
      repeats: chance.happens(0.3) ? 1 : 0,
    };
    return { at: TROUBLE_MS * chance.next(), process: chance.int(PROCESS_NAMES.length), request, manner: null };
  });
  return { ...plan, requests: [...plan.requests, ...requests] };
}
