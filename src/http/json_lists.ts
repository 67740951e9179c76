import { toClientWait, type WaitText } from "../model/wait.ts";
import { type MessageText, toClientMessage } from "../model/message.ts";
import { NotFoundError } from "../model/error.ts";
import type { JsonText, StoredValue } from "../values/json.ts";
import type { LogText } from "../model/log.ts";
import { toClientRun } from "../model/client_run.ts";
import { isOneOf, type RunFilter, type RunText } from "../model/run.ts";
import { type StepText, toClientStep } from "../model/step.ts";
import type { Store } from "../store/store.ts";
import type { FoundRuns, Part, ValuePart, ValuePlace } from "../store/run_query.ts";
import { JSON_HEADERS, noSuchRun } from "./response.ts";

/**
 * A JSON document in pieces: strings, or bytes of UTF-8. Each piece is read from the store when it is requested.
 */
type JsonPieces<Result = number | void> = AsyncGenerator<JsonText | Uint8Array<ArrayBuffer>, Result>;

/**
 * How many characters of records are read at once. It is small, so that V8 collects them soon: strings of more than
 * 128 KiB live longer.
 */
const PART_LENGTH = 32_768;

/** Where lists are read from. */
export interface ListSource {
  /** The store with the records. */
  store: Store;
  /** Yields to the event loop before the next read. */
  nextTurn: () => Promise<void>;
}

/**
 * The runs that were found for a filter, as `/runs` shows them. Runs that were deleted or no longer match are left
 * out, and not counted.
 */
export async function* runsJson(
  source: ListSource,
  { ids, total, hasMore, countedTo }: FoundRuns,
  { status, isSummary, isCounted }: { status: RunFilter["status"]; isSummary: boolean; isCounted: boolean },
): JsonPieces {
  yield '{"runs":';
  const shown = yield* arrayJson(source, runParts(source, ids, status), isSummary ? writeSummary : writeRun);
  if (isCounted) yield `,"total":${total - (ids.length - shown)}${countedTo === null ? "" : ',"totalIsAtLeast":true'}`;
  yield `,"hasMore":${hasMore}}`;
}

/** The steps of a run, as `/steps` shows them. */
export function stepsJson(source: ListSource, runId: string): JsonPieces {
  const read = (after: string | null) => source.store.readSteps(runId, after, PART_LENGTH);
  return arrayJson(source, listParts(source, read, ({ name }) => name), writeStep);
}

/** The waits of a run, as `/waits` shows them. */
export function waitsJson(source: ListSource, runId: string): JsonPieces {
  const read = (after: string | null) => source.store.readWaits(runId, after, PART_LENGTH);
  return arrayJson(source, listParts(source, read, ({ id }) => id), writeWait);
}

/** The messages of a run, as `/messages` shows them: those behind one, up to a limit. */
export function messagesJson(
  source: ListSource,
  runId: string,
  { after = null, limit = Infinity }: { after?: string | null; limit?: number },
): JsonPieces {
  const read = async (after: string | null) => {
    const part = await source.store.readMessages(runId, after, PART_LENGTH);
    if (part === null || part.items.length < limit) {
      limit -= part?.items.length ?? 0;
      return part;
    }
    return { items: part.items.slice(0, limit), hasMore: false };
  };
  const write = (message: MessageText): Written => {
    const place: ValuePlace = { of: "message", runId, messageId: message.id, value: "payload" };
    return writeRecord(toClientMessage(message), { payload: toWritten(message.payload, place) });
  };
  return arrayJson(source, listParts(source, read, ({ id }) => id, after), write);
}

/** The log lines of a run, as `/logs` shows them. */
export function logsJson(source: ListSource, runId: string): JsonPieces {
  const read = (after: string | null) => source.store.readLogs(runId, after, PART_LENGTH);
  return arrayJson(source, listParts(source, read, ({ id }) => id), writeLog);
}

/** A record in JSON: strings, and between them references to large values. */
type Written = (JsonText | ValuePlace)[];

/** Writes an array. Returns how many records it has. */
async function* arrayJson<T>(
  source: ListSource,
  parts: AsyncIterable<readonly T[]>,
  write: (record: T) => Written,
): JsonPieces<number> {
  let count = 0;
  for await (const records of parts) {
    let text = "";
    for (const record of records) {
      const begun = await begin(source, write(record));
      if (begun === null) continue;
      text += count === 0 ? "[" : ",";
      count += 1;
      for (const piece of begun) {
        if (typeof piece === "string") text += piece;
        else {
          yield text;
          text = "";
          yield piece.bytes;
          yield* readRest(source, piece);
        }
      }
    }
    if (text !== "") yield text;
  }
  yield count === 0 ? "[]" : "]";
  return count;
}

/** A large value with its first part. */
interface BegunValue extends ValuePart {
  place: ValuePlace;
}

/**
 * Reads the first parts of large values; `null` if one was deleted with its record, of which nothing is sent yet.
 */
async function begin({ store }: ListSource, written: Written): Promise<(JsonText | BegunValue)[] | null> {
  const begun: (JsonText | BegunValue)[] = [];
  for (const piece of written) {
    if (typeof piece === "string") {
      begun.push(piece);
      continue;
    }
    const part = await store.readValue(piece, 0);
    if (part === null) return null;
    begun.push({ ...part, place: piece });
  }
  return begun;
}

async function* readRest({ store, nextTurn }: ListSource, { place, next }: BegunValue): JsonPieces {
  for (let from = next; from !== null;) {
    await nextTurn();
    const part: ValuePart | null = await store.readValue(place, from);
    if (part === null) throw new NotFoundError("The value has been deleted");
    yield part.bytes;
    from = part.next;
  }
}

async function* runParts(
  { store, nextTurn }: ListSource,
  ids: readonly string[],
  status: RunFilter["status"],
): AsyncGenerator<RunText[], void> {
  for (let read = 0; read < ids.length;) {
    if (read > 0) await nextTurn();
    const runs = await store.readRuns(ids.slice(read), PART_LENGTH);
    read += runs.length;
    yield runs.filter((run) => run !== null).filter((run) => isOneOf(run.status, status));
  }
}

async function* listParts<T>(
  { nextTurn }: ListSource,
  read: (after: string | null) => Promise<Part<T> | null>,
  nameOf: (item: T) => string,
  from: string | null = null,
): AsyncGenerator<T[], void> {
  for (let after = from;;) {
    const part = await read(after);
    // A partial list would look complete.
    if (part === null) throw noSuchRun();
    yield part.items;
    if (!part.hasMore) return;
    after = nameOf(part.items.at(-1)!); // only the last part may be empty
    await nextTurn();
  }
}

function writeRun({ payload: input, output, ...run }: RunText): Written {
  const placeOf = (value: "payload" | "output"): ValuePlace => ({ of: "run", runId: run.id, value });
  return writeRecord(toClientRun({ ...run, payload: null, output: null }), {
    input: toWritten(input, placeOf("payload")),
    output: toWritten(output, placeOf("output")),
  });
}

function writeSummary(run: RunText): Written {
  const { input: _, output: __, ...summary } = toClientRun({ ...run, payload: null, output: null });
  return [JSON.stringify(summary)];
}

function writeStep(step: StepText): Written {
  const place: ValuePlace = { of: "step", runId: step.runId, stepName: step.name, value: "output" };
  return writeRecord(toClientStep({ ...step, output: null }), { output: toWritten(step.output, place) });
}

function writeWait(wait: WaitText): Written {
  const placeOf = (value: "metadata" | "payload"): ValuePlace => ({ of: "wait", waitId: wait.id, value });
  return writeRecord(toClientWait(wait), {
    metadata: toWritten(wait.metadata, placeOf("metadata")),
    payload: toWritten(wait.payload, placeOf("payload")),
  });
}

function writeLog(line: LogText): Written {
  return writeRecord(line, { data: line.data ?? "null" });
}

function toWritten(value: StoredValue, place: ValuePlace): JsonText | ValuePlace {
  if (value === null) return "null";
  return typeof value === "string" ? value : place;
}

/** Writes a record with values that are JSON already. */
function writeRecord(record: object, values: { readonly [name: string]: JsonText | ValuePlace }): Written {
  let separator = "{";
  const written = Object.entries(record).flatMap(([name, member]) => {
    const before = `${separator}${JSON.stringify(name)}:`;
    separator = ",";
    return [before, (Object.hasOwn(values, name) ? values[name] : undefined) ?? JSON.stringify(member)];
  });
  return [...written, "}"];
}

const HEADERS = { ...JSON_HEADERS, "content-type": "application/json" };
const encoder = new TextEncoder();

// The size of a chunk in bytes. V8 does not count the memory of buffers when it schedules collections of young
// objects, so larger chunks let more garbage accumulate.
const CHUNK_BYTES = 4_096;

// A response with at most this many characters is an ordinary body.
const SMALL_LENGTH = 131_072;

/**
 * Creates a response with JSON that is read while it is sent: a piece is read when the client has received the one
 * before. A small response is an ordinary body.
 *
 * If a later piece cannot be read, the body is aborted: it is never valid JSON with missing data.
 *
 * @param onBreak Called with the error that aborted the body.
 * @throws What the reading of the first pieces throws.
 */
export async function streamJson(pieces: JsonPieces, onBreak: (error: unknown) => void): Promise<Response> {
  const head: Piece[] = [];
  for (let length = 0; length < SMALL_LENGTH;) {
    const { done, value: piece } = await pieces.next();
    if (done && head.every((one) => typeof one === "string")) return new Response(head.join(""), { headers: HEADERS });
    if (done) break;
    head.push(piece);
    length += piece.length;
  }
  const chunks = toChunks(head, pieces);
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      try {
        const { done, value: chunk } = await chunks.next();
        if (isCancelled) return;
        if (done) controller.close();
        else controller.enqueue(chunk);
      } catch (error) {
        if (isCancelled) return;
        onBreak(error);
        throw error;
      }
    },
    cancel: () => {
      isCancelled = true;
      // A pending read finishes first; the client does not wait for it.
      chunks.return().catch(() => {});
    },
  }, { highWaterMark: 0 });
  return new Response(body, { headers: HEADERS });
}

type Piece = string | Uint8Array<ArrayBuffer>;

async function* toChunks(head: readonly Piece[], pieces: JsonPieces): AsyncGenerator<Uint8Array, void> {
  for (const piece of head) yield* cut(piece);
  for await (const piece of pieces) yield* cut(piece);
}

function* cut(piece: Piece): Generator<Uint8Array, void> {
  if (typeof piece === "string") return yield encoder.encode(piece);
  for (let at = 0; at < piece.length; at += CHUNK_BYTES) yield piece.slice(at, at + CHUNK_BYTES);
  // Releases the memory now, not at the next collection.
  if (piece.buffer.byteLength === piece.length) piece.buffer.transfer(0);
}
