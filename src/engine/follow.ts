import type { RunEvent } from "../event.ts";
import type { RunWatches } from "./run_watches.ts";

// A reader that does not read: progress is left out first, then the stream ends.
const MANY_UNREAD = 256;
const TOO_MANY_UNREAD = 10_000;

/** Follows a run as a stream: first how it stands, then its events, until the last one. */
export function followRun(runId: string, watches: RunWatches): ReadableStream<RunEvent> {
  let stop: () => void;
  return new ReadableStream({
    start: (controller) => {
      stop = watches.watch(runId, {
        next: (event) => {
          const unread = -(controller.desiredSize ?? 0);
          if (unread > MANY_UNREAD && event.type === "run:progress") return;
          if (unread <= TOO_MANY_UNREAD) return controller.enqueue(event);
          stop();
          controller.close();
        },
        end: (error) => {
          if (error === undefined) controller.close();
          else controller.error(error);
        },
      });
    },
    cancel: () => stop(),
  }, { highWaterMark: 0 });
}

/** The stream of an engine that has stopped. */
export function endedStream(): ReadableStream<RunEvent> {
  return new ReadableStream({ start: (controller) => controller.close() });
}
