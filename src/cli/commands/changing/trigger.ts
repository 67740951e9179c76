import type { Disposition, RunStatus } from "../../../run.ts";
import type { Command } from "../../command.ts";
import { UsageError } from "../../usage_error.ts";
import { readJsonArgument } from "../../read_json.ts";
import { readLabels } from "../../run_filter.ts";
import { askApi } from "../../service/api.ts";

/** Triggers a run. */
export const trigger: Command = {
  name: "trigger",
  usage: "JOB [JSON|-]",
  about: "trigger a run of a job, by a service: the input is JSON, or - for the standard input",
  arity: [1, 2],
  options: {
    "idempotency-key": { value: "KEY", about: "a run with this key is returned instead of a new one" },
    "concurrency-key": { value: "KEY", about: "runs with this key are executed one after another" },
    label: { value: "KEY=VALUE", about: "a label of the run", isList: true },
  },
  async run({ args, service, output, terminal }) {
    if (service.kind === "http") {
      const [jobName, json] = args.positionals;
      const body = {
        jobName,
        input: json === undefined ? undefined : await readJsonArgument(json, terminal),
        labels: readLabels(args.list("label")),
        idempotencyKey: args.text("idempotency-key"),
        concurrencyKey: args.text("concurrency-key"),
      };
      type Answer = { runId: string; disposition: Disposition; status: RunStatus };
      const answer = await askApi<Answer>(service, "POST", "/trigger", { body });
      output.object(answer, ({ runId, disposition, status }) => output.line(`${runId}  ${disposition}, ${status}`));
      return 0;
    }
    throw new UsageError(
      "A database cannot check the input of a run, whose schema is in the code: trigger it by a service, http(s)://...",
    );
  },
};
