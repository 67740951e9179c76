import type { RunEvent } from "../../event.ts";
import type { Message } from "./event_stream.ts";

const encoder = new TextEncoder();

/** The fields of an event that are sent. */
type ShownEvent = Pick<RunEvent, "type" | "runId" | "sequence">;

/** An event that is encoded once for all streams, except for its number. */
export class EncodedEvent {
  /** The number of the event in the journal. */
  readonly sequence: number;
  readonly #head: Uint8Array;
  readonly #subject: string | null;
  #latest: { number: number; message: Message } | null = null;

  /** @param options.isListed Whether it is for streams of several runs, which do not show the input of runs. */
  constructor(event: RunEvent, { isListed }: { isListed: boolean }) {
    const { sequence, ...shown } = isListed ? withoutInputs(event) : event;
    this.sequence = sequence;
    this.#head = encoder.encode(`data: ${JSON.stringify(shown).slice(0, -1)},"sequence":`);
    this.#subject = shown.type === "run:progress" ? shown.runId : null;
  }

  /** The encoded event with a number. */
  numbered(number: number): Message {
    if (this.#latest?.number === number) return this.#latest.message;
    const tail = encoder.encode(`${number}}\n\n`);
    const bytes = new Uint8Array(this.#head.length + tail.length);
    bytes.set(this.#head);
    bytes.set(tail, this.#head.length);
    const message = { bytes, subject: this.#subject };
    this.#latest = { number, message };
    return message;
  }
}

/** An event for streams of several runs, which do not show the input of runs. */
function withoutInputs(event: RunEvent): ShownEvent {
  switch (event.type) {
    case "run:trigger": {
      const { input: _input, ...shown } = event;
      return shown;
    }
    case "run:coalesced": {
      const { skippedInput: _input, skippedLabels: _labels, ...shown } = event;
      return shown;
    }
    default:
      return event;
  }
}
