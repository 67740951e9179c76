import { Chance } from "../support/chance.ts";
import { insert } from "./children_plan.ts";
import { JOB_NAMES, ORGS, type Plan, PROCESS_NAMES, type Request, TROUBLE_MS } from "./plan.ts";
import { type Action, makeProgram, type Program } from "./program.ts";

/** The names of the messages that jobs take. */
export const MESSAGE_NAMES = ["m-a", "m-b", "m-c"] as const;

const IDS = 6;
const KEYS = 4;

/** Lets programs receive messages, and clients send some. It draws from streams of its own. */
export function addMessages(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "messages");
  const share = chance.pick([0.5, 0.9]);
  const until = chance.pick([0, 0.5]);
  const requests = plan.requests.map((planned, no): Plan["requests"][number] => {
    const { request } = planned;
    const own = new Chance(seed, "messages", no);
    if (request.ask === "batch") {
      const items = request.items.map((item) => ({ ...item, program: withReceives(item.program, own, share) }));
      return { ...planned, request: { ...request, items } };
    }
    if (request.ask !== "trigger" && request.ask !== "run") return planned;
    const { options } = request;
    const ends = options.idempotencyKey !== undefined && own.happens(until)
      ? { idempotencyUntil: own.pick(["ended", "failed"] as const) }
      : {};
    const program = withReceives(request.program, own, share);
    return { ...planned, request: { ...request, program, options: { ...options, ...ends } } };
  });
  return { ...plan, hasMessages: true, requests: [...requests, ...makeSends(chance, share)] };
}

function withReceives(program: Program, chance: Chance, share: number): Program {
  if (!chance.happens(share)) return program;
  return Array.from({ length: 1 + chance.int(3) }).reduce<Program>(
    (changed, _, no) => insert(changed, makeReceive(chance, `r${no}`), chance),
    program,
  );
}

function makeReceive(chance: Chance, name: string): Action {
  const names = MESSAGE_NAMES.filter(() => chance.happens(0.6));
  const receive: Action = {
    do: "receive",
    name,
    names: names.length === 0 ? [chance.pick(MESSAGE_NAMES)] : names,
    timeout: chance.happens(0.6) ? chance.pick([0, 20, 300, 1_000]) : null,
    max: chance.happens(0.3) ? 1 + chance.int(4) : null,
    close: chance.happens(0.35) ? chance.pick(["timeout", "always"] as const) : null,
  };
  if (!chance.happens(0.4)) return receive;
  return { do: "repeat", times: 2 + chance.int(2), body: [receive] };
}

function makeSends(chance: Chance, share: number): Plan["requests"] {
  return Array.from({ length: 30 + chance.int(40) }, () => {
    const jobName = chance.pick(JOB_NAMES);
    const key = `same-${chance.int(KEYS)}`;
    const hasStart = chance.happens(0.5);
    const start = {
      program: withReceives(makeProgram(chance), chance, Math.max(share, 0.7)),
      options: { labels: { org: chance.pick(ORGS) } },
    };
    const request: Request = {
      ask: "send",
      which: chance.next(),
      to: chance.happens(0.4) ? { jobName, key, start: hasStart ? start : null } : null,
      name: chance.pick(MESSAGE_NAMES),
      payload: chance.int(3),
      messageId: chance.happens(0.7) ? `message ${chance.int(IDS)}` : null,
      atDeadline: chance.happens(0.3),
      repeats: chance.happens(0.3) ? 1 : 0,
    };
    return { at: TROUBLE_MS * chance.next(), process: chance.int(PROCESS_NAMES.length), request, manner: null };
  });
}
