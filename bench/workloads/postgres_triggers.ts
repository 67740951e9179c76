import { measureTriggers, TRIGGER_KINDS } from "../postgres/measure_triggers.ts";
import { serverUrl } from "../postgres/server_url.ts";
import type { Workload } from "../workload.ts";

/** Whether triggers that depend on other runs wait for each other's commits on a PostgreSQL server. */
export const postgresTriggers: Workload = {
  name: "postgres_triggers",
  title: "PostgreSQL: triggers where a commit takes 5 ms",
  about:
    "Four stores, each with one trigger after another, and commit_delay = 5 ms: what waits for the commits of others " +
    "takes several times as long. Each kind as a part of the plain triggers a second of the same round.",
  trials: [{
    name: "four stores",
    figures: TRIGGER_KINDS.map((name, at) =>
      at === 0
        ? { name, unit: "per second", goals: [] } as const
        : { name, unit: "of the first", goals: [{ above: 0.9 }] } as const
    ),
    rounds: 3,
    contenders: {
      async holdfast({ size }) {
        const [plain, ...others] = await measureTriggers({
          url: serverUrl(),
          commitMs: 5,
          writers: 4,
          count: size(100, 3),
        });
        return [plain!, ...others.map((speed) => speed / plain!)]; // the plain ones are the first kind
      },
    },
  }],
};
