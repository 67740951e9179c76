import type { Command, CommandCall } from "../command.ts";
import { StoreError } from "../../model/error.ts";
import type { Json } from "../../values/json.ts";
import { toJsonLine } from "../../values/text.ts";
import { findRunId, refusalOf, toSearch } from "../service/api.ts";
import { pauseUnlessAborted } from "../service/follow_events.ts";
import type { Output } from "../output/output.ts";

const RECONNECT_MS = 1_000;

/** Shows the items of a stream of a run. */
export const stream: Command = {
  name: "stream",
  usage: "RUN NAME [--follow]",
  about: "show what the steps of a run have written to a stream; strings as text",
  arity: [2, 2],
  options: { follow: { value: null, about: "wait for what comes, until the run has ended" } },
  async run({ args, service, output, terminal: { abortSignal } }) {
    const [run, name] = args.positionals as [string, string]; // it takes two
    const runId = await findRunId(service, run);
    const printer = new ItemPrinter(output);
    let offset = "-1";
    let isUpToDate = false;
    let isKnown = false;
    let isAway = false;
    while (!abortSignal.aborted) {
      const query = { runId, name, offset, live: isUpToDate ? "long-poll" : undefined };
      let response: Response;
      try {
        response = await service.ask(`/stream${toSearch(query)}`, { signal: abortSignal });
        if (response.status >= 500) throw refusalOf(response, await response.text());
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
      const text = await response.text();
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
      if (response.status === 200) { for (const item of JSON.parse(text) as Json[]) printer.print(item); }
      offset = response.headers.get("stream-next-offset") ?? offset;
      isUpToDate = response.headers.has("stream-up-to-date");
      if (response.headers.has("stream-closed") || (isUpToDate && !args.has("follow"))) break;
    }
    printer.flush();
    return 0;
  },
};

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
