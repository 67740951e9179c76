import { Chance } from "../support/chance.ts";
import { JOB_NAMES, ORGS, type Plan, PROCESS_NAMES, type Request, TROUBLE_MS } from "./plan.ts";

/** Adds clients that change many runs at once. The rest of the plan stays the same. */
export function addBulk(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "bulk");
  const requests = Array.from({ length: 1 + chance.int(3) }, (): Plan["requests"][number] => {
    const operation = chance.weighted([[3, "retrigger"], [1, "cancel"], [1, "delete"]] as const);
    const request: Request = {
      ask: "bulk",
      operation,
      selection: chance.happens(0.5) ? makeFilter(chance) : { byIds: 2 + chance.int(8) },
      limit: 1 + chance.int(4),
      from: chance.pick(["start", "failure"] as const),
    };
    const at = TROUBLE_MS * chance.between(0.2, 1);
    return { at, process: chance.int(PROCESS_NAMES.length), request, manner: null };
  });
  return { ...plan, requests: [...plan.requests, ...requests] };
}

function makeFilter(chance: Chance) {
  const labels = { org: chance.pick(ORGS) };
  const jobName = chance.pick(JOB_NAMES);
  return chance.pick([{ jobName }, { labels }, { jobName, labels }]);
}
