import { measureClaims } from "../postgres/measure_claims.ts";
import { serverUrl } from "../postgres/server_url.ts";
import type { Stock } from "../postgres/stock.ts";
import type { Measure, Trial, Workload } from "../workload.ts";

const CLAIMS = 40;
const AS_EMPTY = [{ atLeast: 0.9, of: "empty" }] as const;

/** Whether runs that have ended, wait or are blocked make claims on a PostgreSQL server slower. */
export const postgresFlat: Workload = {
  name: "postgres_flat",
  title: "PostgreSQL: claims of 100 runs in a full database",
  about:
    "One process, one claim after another, each of runs that were added right before. The server keeps the plans of " +
    "a session for as long as it lasts, so a session that began when the tables were empty is measured, and a new one.",
  trials: [flat("finished", 1_000_000), flat("waiting", 100_000), flat("behind", 100_000)],
};

function flat(stock: Stock, count: number): Trial {
  const names = { finished: "finished", waiting: "waiting", behind: "behind a busy key" };
  const measure = (stock: Stock | null): Measure => ({ size }) =>
    measureClaims({ url: serverUrl(), stock, count: size(count, 1_000), claims: size(CLAIMS, 3) });
  return {
    name: `${count.toLocaleString("en")} ${names[stock]}`,
    figures: [
      { name: "in a session from before", unit: "ms", goals: AS_EMPTY },
      { name: "in a new session", unit: "ms", goals: AS_EMPTY },
    ],
    rounds: 2,
    contenders: { empty: measure(null), holdfast: measure(stock) },
  };
}
