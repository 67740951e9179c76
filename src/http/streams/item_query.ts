import { ValidationError } from "../../model/error.ts";
import { parsePlace, STREAM_START, streamName, type StreamPlace } from "../../model/stream.ts";
import { oneOf, TEXT } from "../openapi/json_schema.ts";
import { all, type Query, required, RUN_ID } from "../requests/parameters.ts";

/** What is read of a stream. */
export interface ItemsQuery {
  /** The run. */
  runId: string;
  /** The name of the stream. */
  name: string;
  /** Where to go on; `now`: at the end. */
  offset: StreamPlace | "now";
  /** How to wait for what comes; `undefined`: not at all. */
  live: "long-poll" | "sse" | undefined;
  /** The cursor of an earlier answer, for caches. */
  cursor: number | null;
  /** Whether an event says what does not count any more, instead of the end of the stream. */
  tellsResets: boolean;
  /** Whether strings are sent as text. */
  isText: boolean;
  /** Whether only the end is asked for. */
  isHead: boolean;
  /** The `ETag` that the client has. */
  etag: string | null;
  /** With `live=long-poll`: fires when the client has left. */
  left: AbortSignal | null;
}

const MORE: Query<Omit<ItemsQuery, "runId" | "name">> = {
  parameters: [
    {
      name: "offset",
      schema: { ...TEXT, default: "-1" },
      description: "-1 (the beginning), now, or a Stream-Next-Offset",
    },
    { name: "live", schema: oneOf(["long-poll", "sse"]), description: "How to wait for what comes; needs offset" },
    { name: "cursor", schema: TEXT, description: "The Stream-Cursor of an earlier answer" },
    {
      name: "resets",
      schema: oneOf(["event"]),
      description: "With live=sse: an event says what does not count any more",
    },
    { name: "as", schema: oneOf(["text"]), description: "The items that are strings, joined" },
  ],
  read: (query, request) => {
    const live = readChoice(query, "live", ["long-poll", "sse"] as const);
    const lastEventId = live === "sse" ? request.headers.get("last-event-id") : null;
    return {
      offset: readOffset(lastEventId ?? readOnce(query, "offset"), live),
      live,
      cursor: readCursor(readOnce(query, "cursor")),
      tellsResets: readChoice(query, "resets", ["event"] as const) === "event",
      isText: readChoice(query, "as", ["text"] as const) === "text",
      isHead: request.method === "HEAD",
      etag: request.headers.get("if-none-match"),
      left: live === "long-poll" ? request.signal : null,
    };
  },
};

const NAME: Query<{ name: string }> = {
  ...required("name"),
  read: (query, request) => ({ name: streamName(required("name").read(query, request).name) }),
};

/** The parameters of a request for items. */
export const ITEMS: Query<ItemsQuery> = all(RUN_ID, NAME, MORE);

function readOffset(text: string | undefined, live: ItemsQuery["live"]): StreamPlace | "now" {
  if (text === undefined && live !== undefined) throw new ValidationError("The parameter offset is missing");
  if (text === undefined || text === "-1") return STREAM_START;
  if (text === "now") return text;
  const place = parsePlace(text);
  if (place !== null) return place;
  throw new ValidationError("The parameter offset must be -1, now, or the Stream-Next-Offset of an answer");
}

/** A cursor that is none is like none: it is only for caches. */
function readCursor(text: string | undefined): number | null {
  const cursor = text === undefined || !/^\d{1,15}$/.test(text) ? null : Number(text);
  return cursor;
}

function readChoice<T extends string>(query: URLSearchParams, name: string, choices: readonly T[]): T | undefined {
  const value = readOnce(query, name);
  const choice = choices.find((one) => one === value);
  if (value === undefined || choice !== undefined) return choice;
  throw new ValidationError(`The parameter ${name} can only be ${choices.join(" or ")}`);
}

function readOnce(query: URLSearchParams, name: string): string | undefined {
  const values = query.getAll(name);
  if (values.length > 1) throw new ValidationError(`The parameter ${name} may be given only once`);
  return values[0];
}
