import { NotFoundError } from "../error.ts";
import type { JsonText } from "../json.ts";
import type { LogText } from "../log.ts";
import { isOneOf, type RunFilter, type RunText, toClientRun } from "../run.ts";
import type { StepText } from "../step.ts";
import type { FoundRuns, Part, Store } from "../store.ts";
import type { WaitText } from "../wait.ts";

/** The text of an answer in JSON, piece by piece. Nothing is read from the store before it is asked for. */
export type JsonPieces = AsyncGenerator<JsonText, void>;

/** How many characters a piece has, and what a single record takes beyond. */
export const PIECE_LENGTH = 262_144;

/** Where lists are read from. */
export interface ListSource {
  /** Keeps the records. */
  store: Store;
  /** Lets everything else go on before more is read. */
  nextTurn: () => Promise<void>;
}

/** The runs that were found for a filter, as `/runs` shows them. Those that have gone or changed since are left out. */
export async function* runsJson(
  source: ListSource,
  { ids, total, hasMore }: FoundRuns,
  status: RunFilter["status"],
): JsonPieces {
  yield '{"runs":';
  yield* arrayJson(runParts(source, ids, status), writeRun);
  yield `,"total":${total},"hasMore":${hasMore}}`;
}

/** The steps of a run, as `/steps` shows them. */
export function stepsJson({ store, nextTurn }: ListSource, runId: string): JsonPieces {
  const read = (after: string | null) => store.readSteps(runId, after, PIECE_LENGTH);
  return arrayJson(listParts(read, ({ name }) => name, nextTurn), writeStep);
}

/** The waits of a run, as `/waits` shows them. */
export function waitsJson({ store, nextTurn }: ListSource, runId: string): JsonPieces {
  const read = (after: string | null) => store.readWaits(runId, after, PIECE_LENGTH);
  return arrayJson(listParts(read, ({ id }) => id, nextTurn), writeWait);
}

/** The log lines of a run, as `/logs` shows them. */
export function logsJson({ store, nextTurn }: ListSource, runId: string): JsonPieces {
  const read = (after: string | null) => store.readLogs(runId, after, PIECE_LENGTH);
  return arrayJson(listParts(read, ({ id }) => id, nextTurn), writeLog);
}

async function* arrayJson<T>(parts: AsyncIterable<readonly T[]>, write: (item: T) => JsonText): JsonPieces {
  let separator = "[";
  for await (const items of parts) {
    if (items.length === 0) continue;
    yield separator + items.map(write).join(",");
    separator = ",";
  }
  yield separator === "[" ? "[]" : "]";
}

async function* runParts(
  { store, nextTurn }: ListSource,
  ids: readonly string[],
  status: RunFilter["status"],
): AsyncGenerator<RunText[], void> {
  for (let read = 0; read < ids.length;) {
    if (read > 0) await nextTurn();
    const runs = await store.readRuns(ids.slice(read), PIECE_LENGTH);
    read += runs.length;
    yield runs.filter((run) => run !== null).filter((run) => isOneOf(run.status, status));
  }
}

async function* listParts<T>(
  read: (after: string | null) => Promise<Part<T> | null>,
  nameOf: (item: T) => string,
  nextTurn: () => Promise<void>,
): AsyncGenerator<T[], void> {
  for (let after: string | null = null;;) {
    const part: Part<T> | null = await read(after);
    // Half of a list would look like all of it.
    if (part === null) throw new NotFoundError("There is no such run");
    yield part.items;
    if (!part.hasMore) return;
    after = nameOf(part.items.at(-1)!);
    await nextTurn();
  }
}

function writeRun({ payload, output, ...run }: RunText): JsonText {
  return writeRecord(toClientRun({ ...run, payload: null, output: null }), { input: payload, output });
}

function writeStep(step: StepText): JsonText {
  return writeRecord(step, { output: step.output });
}

function writeWait(wait: WaitText): JsonText {
  return writeRecord(wait, { metadata: wait.metadata, payload: wait.payload });
}

function writeLog(line: LogText): JsonText {
  return writeRecord(line, { data: line.data });
}

/** Writes a record some of whose values are JSON already. */
function writeRecord(record: object, texts: { readonly [name: string]: JsonText | null }): JsonText {
  const members = Object.entries(record).map(([name, value]) => {
    const text = Object.hasOwn(texts, name) ? texts[name] ?? "null" : JSON.stringify(value);
    return `${JSON.stringify(name)}:${text}`;
  });
  return `{${members.join(",")}}`;
}
