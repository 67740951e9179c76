import { isLastEvent, type RunEvent } from "../../model/event.ts";
import type { Message } from "./event_stream.ts";

const encoder = new TextEncoder();
// Comes before the last event of a run: an `EventSource` would come back after three seconds, for nothing.
const STAY_AWAY = "retry: 86400000\n\n";

/** The fields of an event that are sent. */
type ShownEvent = Pick<RunEvent, "type" | "runId" | "sequence">;

const listed = new WeakMap<RunEvent, EncodedEvent>();
const ofRuns = new WeakMap<RunEvent, EncodedEvent>();

/**
 * The encoded event that all streams share.
 *
 * @param options.isListed Whether it is for streams of several runs.
 */
export function encodedOf(event: RunEvent, { isListed }: { isListed: boolean }): EncodedEvent {
  const known = isListed ? listed : ofRuns;
  const encoded = known.get(event) ?? new EncodedEvent(event, { isListed });
  known.set(event, encoded);
  return encoded;
}

/** An event that is encoded once for all streams, except for its number, and only if a stream sends it. */
export class EncodedEvent {
  /** The event; its `sequence` is its number in the journal. */
  readonly event: RunEvent;
  readonly #isListed: boolean;
  #head: Uint8Array | null = null;
  #latest: { number: number; message: Message } | null = null;

  /** @param options.isListed Whether it is for streams of several runs, which do not show the input of runs. */
  constructor(event: RunEvent, { isListed }: { isListed: boolean }) {
    this.event = event;
    this.#isListed = isListed;
  }

  /** The encoded event with a number. */
  numbered(number: number): Message {
    if (this.#latest?.number === number) return this.#latest.message;
    const head = this.#head ??= this.#encodeHead();
    const tail = encoder.encode(`${number}}\n\n`);
    const bytes = new Uint8Array(head.length + tail.length);
    bytes.set(head);
    bytes.set(tail, head.length);
    const message = { bytes, subject: this.event.type === "run:progress" ? this.event.runId : null };
    this.#latest = { number, message };
    return message;
  }

  #encodeHead(): Uint8Array {
    const { sequence: _number, ...shown } = this.#isListed ? withoutInputs(this.event) : this.event;
    const before = !this.#isListed && isLastEvent(this.event) ? STAY_AWAY : "";
    return encoder.encode(`${before}data: ${JSON.stringify(shown).slice(0, -1)},"sequence":`);
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
