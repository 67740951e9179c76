import { describeDuration } from "../../values/duration.ts";
import { isLastEvent, type RunEvent } from "../../model/event.ts";
import type { Command, CommandCall, ExitCode } from "../command.ts";
import { findRunId } from "../service/api.ts";
import { toJsonLine } from "../../values/text.ts";
import type { Color } from "../output/table.ts";
import { UsageError } from "../arguments.ts";
import { type Followed, followEvents } from "../service/follow_events.ts";

/** Follows one run to its end, or all runs. */
export const tail: Command = {
  name: "tail",
  usage: "[RUN] [--job NAME] [--logs]",
  about: "follow a run to its end (exit code 1 unless it completes), or all runs",
  arity: [0, 1],
  options: {
    job: { value: "NAME", about: "runs of this job", isList: true },
    logs: { value: null, about: "show log lines, too" },
  },
  async run(call) {
    const { args, service, output, terminal: { abortSignal } } = call;
    const options = { abortSignal, note: (text: string) => output.note(text) };
    const [text] = args.positionals;
    if (text === undefined) {
      if (args.has("logs")) {
        throw new UsageError("--logs is for one run: the events of several runs have no log lines; name the run");
      }
      const query = { jobName: args.list("job") };
      for await (const followed of followEvents(service, "/runs/subscribe", query, options)) print(call, followed);
      return 0;
    }
    const runId = await findRunId(service, text);
    let code: ExitCode = 0;
    for await (const followed of followEvents(service, "/subscribe", { runId }, options)) {
      print(call, followed);
      if (followed.event === null || !isLastEvent(followed.event)) continue;
      code = followed.event.type === "run:complete" ? 0 : 1;
      break;
    }
    return code;
  },
};

function print({ args, output }: CommandCall, { event }: Followed): void {
  if (event === null) return output.note("Some events are missing here: they are not kept any more");
  if (event.type === "log:write" && !args.has("logs")) return;
  output.object(event, (event) => {
    const { timestamp, jobName, runId, type } = event;
    const detail = detailOf(event);
    output.line(
      `${timestamp}  ${runId}  ${jobName}  ${type}${detail === "" ? "" : `  ${detail}`}`,
      COLORS[type] ?? null,
    );
  });
}

const COLORS: { readonly [type: string]: Color } = {
  "run:complete": "green",
  "run:fail": "red",
  "step:fail": "red",
  "run:hold": "yellow",
  "run:waiting": "yellow",
};

function detailOf(event: RunEvent): string {
  switch (event.type) {
    case "run:fail":
      return event.error;
    case "run:complete":
      return `in ${describeDuration(event.duration)}`;
    case "run:waiting":
      return event.waitName;
    case "run:hold":
      return event.message;
    case "run:progress":
      return toJsonLine(event.progress);
    case "step:start":
      return event.attempt === 1 ? event.stepName : `${event.stepName} (attempt ${event.attempt})`;
    case "step:complete":
      return `${event.stepName} in ${describeDuration(event.duration)}`;
    case "step:fail":
      return `${event.stepName}: ${event.error}${event.retryAt === null ? "" : `; again at ${event.retryAt}`}`;
    case "step:cancel":
      return event.stepName;
    case "log:write":
      return `${event.level}: ${event.message}${event.data === null ? "" : ` ${toJsonLine(event.data)}`}`;
    default:
      return "";
  }
}
