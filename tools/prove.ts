// deno task prove [--minutes 5] [--store sqlite|postgres] [--seed S]
//
// Kills real processes on this machine, and says what was compared with what. It is the storm of `deno task torture`.
// Ends with status 1 if a promise was broken, or if it could not be tried.

import { parseArgs } from "node:util";
import type { Result } from "../tests/support/results.ts";
import { runTool } from "./run_tool.ts";

type Counts = Result["counts"];
type Said = readonly (readonly [what: string, counts: readonly string[]])[];

/** What was compared, by the store: what is said of it, with what was counted. */
export const SAYS: Record<string, Said> = {
  sqlite: [
    ["What was done to the processes and the file", [
      "kills",
      "suspensions",
      "graceful stops",
      "power losses",
      "damaged copies opened",
    ]],
    [
      "The rows of the file were compared with what the workers wrote to a file of their own before and after each step",
      [
        "runs that ended",
        "steps started",
        "steps recorded",
        "stale writes refused",
      ],
    ],
    ["The rows were compared with what clients were answered over HTTP (their receipts)", [
      "requests",
      "triggers answered",
      "signal receipts compared",
      "cancels confirmed",
      "terminal runs compared again",
    ]],
    ["The events that clients received were compared with the journal, and the journal with the rows", [
      "streams read",
      "streams resumed",
      "events compared with the journal",
      "facts in the journal",
    ]],
    ["Copies after simulated power losses had to open in the state of some commit, and to be finished", [
      "damaged copies opened",
      "damaged copies drained",
      "backups",
    ]],
  ],
  postgres: [
    ["What was done to the processes and the server", [
      "workers killed",
      "workers suspended",
      "restarts of the server",
    ]],
    ["The tables were compared with what the workers wrote to a file of their own before and after each step", [
      "runs",
      "steps started",
      "steps recorded",
      "steps acknowledged",
    ]],
    ["The tables were compared with what the client was answered (its receipts)", [
      "runs triggered",
      "signals accepted",
      "runs cancelled",
      "runs retriggered",
      "runs deleted",
      "runs followed",
    ]],
    ["No key and no limit had more leases than it may have", ["looks at leases"]],
  ],
};

/** What a storm came to, for somebody who does not know the test. */
export function describeProof(store: string, { broken, counts }: Result, command: string): string {
  const says = SAYS[store]!.map(([what, names]) => `${what}:\n${names.map((name) => line(name, counts)).join("\n")}`);
  return [...says, `To repeat it: ${command}`, `promises broken: ${broken ?? "not tried"}`].join("\n\n");
}

function line(name: string, counts: Counts): string {
  return `${(counts[name] ?? 0).toLocaleString("en").padStart(12)}  ${name}`;
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      minutes: { type: "string", default: "5" },
      store: { type: "string", default: "sqlite" },
      seed: { type: "string", default: String(1 + Math.floor(Math.random() * 1_000_000)) },
    },
  });
  const { minutes, store, seed } = values;
  if (!(store in SAYS)) throw new RangeError(`--store is one of ${Object.keys(SAYS).join(", ")}`);
  const options = ["--minutes", minutes, "--store", store, "--seed", seed];
  const { results, isOk } = await runTool(["torture", "--only", "storm", ...options]);
  const [result] = results;
  if (result === undefined || result.broken === null) {
    console.error(`Nothing was tried: ${result?.told}`);
    Deno.exit(1);
  }
  console.log(`\n${describeProof(store, result, `deno task prove ${options.join(" ")}`)}`);
  if (!isOk || result.broken > 0) Deno.exit(1);
}
