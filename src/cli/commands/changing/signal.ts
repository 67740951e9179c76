import { createHash } from "node:crypto";
import { NotFoundError } from "../../../error.ts";
import type { SignalReceipt } from "../../../wait.ts";
import type { Command } from "../../command.ts";
import type { Found } from "../../find_run.ts";
import { readJsonArgument } from "../../read_json.ts";
import { askApi } from "../../service/api.ts";

/** Ends a wait. */
export const signal: Command = {
  name: "signal",
  usage: "WAIT JSON|-",
  about: "end a wait by a signal with this payload",
  arity: [2, 2],
  options: { "signal-id": { value: "ID", about: "identifies a repeated signal (made of the wait and the payload)" } },
  async run({ args, service, output, terminal }) {
    const [waitId, json] = [args.positionals[0]!, args.positionals[1]!];
    const payload = await readJsonArgument(json, terminal);
    const found = await askApi<Found>(service, "GET", "/find", { query: { q: waitId } });
    const run = found.find(({ by }) => by === "waitId")?.run;
    if (run === undefined) throw new NotFoundError(`There is no wait "${waitId}": \`holdfast waits\` lists them`);
    // The same command again is the same signal.
    const hash = createHash("sha256").update(JSON.stringify(payload)).digest("hex").slice(0, 16);
    const signalId = args.text("signal-id") ?? `cli-${waitId}-${hash}`;
    const query = { runId: run.id, waitId };
    const receipt = await askApi<SignalReceipt>(service, "POST", "/signal", { query, body: { signalId, payload } });
    output.object(receipt, ({ disposition }) => output.line(`The signal is ${disposition}; run ${run.id} resumes`));
    return 0;
  },
};
