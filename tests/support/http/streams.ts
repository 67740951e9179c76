import type { HandlerOptions } from "../../../src/http/handler_options.ts";
import { EventReader } from "./event_reader.ts";
import type { StoreTest } from "../stores/for_each_store.ts";
import { aRequest, aService, type Service } from "./http.ts";
import { aScript } from "../jobs.ts";

/** A service with one scripted job, whose run is being executed. */
export async function aPlay(context: StoreTest, options: HandlerOptions = {}) {
  const script = aScript();
  const service = aService(options, context, { script: script.job });
  const { id } = await service.engine.trigger("script", null, { labels: { org: "acme" } });
  const idle = service.engine.runUntilIdle();
  const step = await script.begun;
  const end = async () => {
    script.end(null);
    await idle;
    await context.host.settle();
  };
  return { ...script, service, id, step, idle, end };
}

/** Follows one run over HTTP. */
export async function follow({ handler }: Pick<Service, "handler">, runId: string): Promise<EventReader> {
  return new EventReader(await handler.fetch(aRequest("GET", `/subscribe?runId=${runId}`)));
}

/** Follows a list of runs over HTTP. */
export async function followList({ handler }: Pick<Service, "handler">, query = ""): Promise<EventReader> {
  return new EventReader(await handler.fetch(aRequest("GET", `/runs/subscribe${query}`)));
}

/** What a reader was told of progress. */
export function progressOf({ events }: EventReader): number[] {
  return events.flatMap((event) => event.type === "run:progress" ? [event.progress.current] : []);
}

/** After so long what a job reports is in the store, in milliseconds. */
export const REPORTED_MS = 20;

/** How long it takes at most until events of another engine are received, in milliseconds: the polling interval, and a look. */
export const ELSEWHERE_MS = 1_200;

/** What is encoded as UTF-8 while a function runs. */
export async function recordEncoded(run: () => Promise<void>): Promise<string[]> {
  const { encode } = TextEncoder.prototype;
  const encoded: string[] = [];
  TextEncoder.prototype.encode = function (text) {
    encoded.push(text ?? "");
    return encode.call(this, text);
  };
  try {
    await run();
  } finally {
    TextEncoder.prototype.encode = encode;
  }
  return encoded;
}
