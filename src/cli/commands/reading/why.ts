import type { Explanation } from "../../../engine/operate/explain/explanation.ts";
import type { Command } from "../../command.ts";
import { findRunId } from "../../find_run.ts";
import { askApi } from "../../service/api.ts";

/** Says why a run is not executed. */
export const why: Command = {
  name: "why",
  usage: "RUN",
  about: "say why a run is not executed, and what to act on first",
  arity: [1, 1],
  options: {},
  async run({ args, service, output }) {
    const runId = await findRunId(service, args.positionals[0]!);
    const explanation = await askApi<Explanation>(service, "GET", "/explain", { query: { runId } });
    output.object(explanation, ({ status, message, reasons }) => {
      output.line(sentenceOf(status, message));
      for (const { message } of reasons.slice(1)) output.line(`  ${message}`);
    });
    return 0;
  },
};

/** `Pending: behind run ...`. A message that begins with the status stays. */
function sentenceOf(status: string, message: string): string {
  const name = status[0]!.toUpperCase() + status.slice(1);
  if (message.toLowerCase().startsWith(status)) return message;
  return `${name}: ${message[0]!.toLowerCase()}${message.slice(1)}`;
}
