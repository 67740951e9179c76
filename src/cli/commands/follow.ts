import { describeDuration } from "../../values/duration.ts";
import { isLastEvent, type RunEvent } from "../../model/event.ts";
import { type Command, type CommandCall, UsageError } from "../command.ts";
import { askApi, findRunId, readText, refusalOf, toSearch } from "../service/api.ts";
import { toJsonLine } from "../../values/text.ts";
import type { Color, Output } from "../output.ts";
import { type Followed, followEvents, pauseUnlessAborted } from "../service/follow_events.ts";
import { NotFoundError, StoreError } from "../../model/error.ts";
import type { Service } from "../service/service.ts";
import type { StreamInfo } from "../../model/stream.ts";
import type { Json } from "../../values/json.ts";

/** Follows one run to its end, or all runs. */
export const tail: Command = {
  name: "tail",
  usage: "[RUN] [--job NAME] [--logs]",
  about: "follow a run to its end (exit code 1 unless it completes), or all runs",
  options: {
    job: { value: "NAME", about: "runs of this job", isList: true },
    logs: { value: null, about: "show log lines, too" },
  },
  async run(call) {
    const { args, service, output, terminal: { abortSignal } } = call;
    const options = { abortSignal, note: (text: string) => output.note(text) };
    const [text] = args.positionals;
    if (text === undefined && args.has("logs")) {
      throw new UsageError("--logs is for one run: the events of several runs have no log lines; name the run");
    }
    const runId = text === undefined ? null : await findRunId(service, text);
    const [path, query] = runId === null
      ? ["/runs/subscribe", { jobName: args.list("job") }]
      : ["/subscribe", { runId }];
    for await (const followed of followEvents(service, path, query, options)) {
      print(call, followed);
      if (runId === null || followed.event === null || !isLastEvent(followed.event)) continue;
      return followed.event.type === "run:complete" ? 0 : 1;
    }
    return 0;
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

const RECONNECT_MS = 1_000;

/** Shows the items of a stream of a run. */
export const stream: Command = {
  name: "stream",
  usage: "RUN NAME [--follow]",
  about: "show what the steps of a run have written to a stream; strings as text",
  options: { follow: { value: null, about: "wait for what comes, until the run has ended" } },
  async run({ args, service, output, terminal: { abortSignal } }) {
    const [run, name] = args.positionals as [string, string]; // it takes two
    const runId = await findRunId(service, run);
    const printer = new ItemPrinter(output);
    let offset = "-1";
    let isUpToDate = false;
    let isKnown = false;
    let isAway = false;
    let hasItems = false;
    while (!abortSignal.aborted) {
      const query = { runId, name, offset, live: isUpToDate ? "long-poll" : undefined };
      let response: Response;
      let text: string;
      try {
        response = await service.ask(`/stream${toSearch(query)}`, { signal: abortSignal });
        text = await readText(response);
        if (response.status >= 500) throw refusalOf(response, text);
      } catch (error) {
        if (abortSignal.aborted) break;
        if (!isKnown || !args.has("follow") || !(error instanceof StoreError)) throw error;
        if (!isAway) output.note(`${error.message}; trying again`);
        isAway = true;
        await pauseUnlessAborted(RECONNECT_MS, abortSignal);
        continue;
      }
      if (isAway) output.note("The service is back");
      isAway = false;
      isKnown = true;
      if (response.status === 410) {
        const reset: { from: number; offset: string } = JSON.parse(text);
        printer.flush();
        output.note(
          `--- the step is attempted again: ${reset.from} ${reset.from === 1 ? "item remains" : "items remain"} ---`,
        );
        offset = reset.offset;
        continue;
      }
      if (!response.ok) throw refusalOf(response, text);
      const items: Json[] = response.status === 200 ? JSON.parse(text) : [];
      for (const item of items) printer.print(item);
      hasItems ||= items.length > 0;
      offset = response.headers.get("stream-next-offset") ?? offset;
      isUpToDate = response.headers.has("stream-up-to-date");
      if (response.headers.has("stream-closed") || (isUpToDate && !args.has("follow"))) break;
    }
    printer.flush();
    if (!hasItems && !abortSignal.aborted) await checkStream(service, runId, name);
  },
};

/**
 * Checks that a run has a stream, of which nothing was shown.
 *
 * @throws {NotFoundError} It has none of this name.
 */
async function checkStream(service: Service, runId: string, name: string): Promise<void> {
  const names = (await askApi(service, "GET /streams", { query: { runId } }) as StreamInfo[]).map(({ name }) => name);
  if (names.includes(name)) return;
  const others = names.length === 0 ? "" : `; it has written to ${names.map((one) => `"${one}"`).join(", ")}`;
  throw new NotFoundError(`Run "${runId}" has written nothing to a stream "${name}"${others}`);
}

/** Prints items: strings as one text, as they come, others as a line of JSON each. */
class ItemPrinter {
  readonly #output: CommandCall["output"];
  #endsLine = true;

  constructor(output: Output) {
    this.#output = output;
  }

  print(item: Json): void {
    if (this.#output.isJson || typeof item !== "string") {
      this.flush();
      return this.#output.object(item, () => this.#output.line(toJsonLine(item)));
    }
    this.#output.text(item);
    if (item !== "") this.#endsLine = item.endsWith("\n");
  }

  /** Ends the last line. */
  flush(): void {
    if (!this.#endsLine) this.#output.line("");
    this.#endsLine = true;
  }
}
