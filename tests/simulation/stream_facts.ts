import type { Chunk, StreamPlace, StreamWriter } from "../../src/model/stream.ts";
import type { Lease } from "../../src/model/lease.ts";
import type { SavedStep, StepWrite } from "../../src/model/step.ts";
import type { StepTools } from "../../src/model/job/step_calls.ts";
import type { Store } from "../../src/store/store.ts";
import type { StreamText } from "../../src/store/run_query.ts";
import type { Facts, RunFacts } from "./facts.ts";

/** The stream that all steps of a run write, one after another. */
export const STREAM = "shared";

/** What is known of the stream of a run. */
export interface StreamFacts {
  /** The items of each attempt that writes, by its name, in their order. */
  written: Map<string, string[]>;
  /** The attempts whose steps completed, in the order of their records, by the name of the step. */
  completed: Map<string, string>;
  /** The attempts that another one has followed. */
  void: Set<string>;
  /** The number of the last chunk that the store has taken. */
  last: number;
  /** The number of the last permanent one: a retry from the failure begins with these. */
  permanent: number;
  /** The items that were ever seen under a place. */
  seen: Map<string, string>;
  /** What a reader has, and its place. */
  reader: { place: StreamPlace; list: string[] };
}

/** What is known of the stream of a new run. A retry from the failure has what was permanent in the run before. */
export function newStreamFacts(source: RunFacts | null, undone: ReadonlyMap<string, string>): StreamFacts {
  const before = source?.streamed;
  // One that was undone writes others when it is done again.
  const keptName = (name: string) => undone.has(name) ? `${name} of ${source!.request.id}` : name;
  return {
    written: new Map(before?.written),
    completed: new Map([...before?.completed ?? []].map(([name, attempt]) => [keptName(name), attempt])),
    void: new Set(),
    last: before?.permanent ?? 0,
    permanent: before?.permanent ?? 0,
    seen: new Map(),
    reader: { place: { position: 0, at: 0 }, list: [] },
  };
}

/** Writes some items to the stream, unless another step writes to it. Returns what writes the rest. */
export function writeSome(
  run: RunFacts,
  { stream }: Partial<Pick<StepTools, "stream">>,
  attempt: string,
): () => void {
  const count = [...attempt].reduce((sum, char) => (sum * 31 + char.charCodeAt(0)) % 1_009, 7) % 5;
  const { written } = run.streamed;
  let writer: StreamWriter<string>;
  if (stream === undefined || count === 0) return () => {};
  try {
    writer = stream<string>(STREAM);
  } catch {
    return () => {};
  }
  const items: string[] = [];
  written.set(attempt, items);
  const write = (no: number) => {
    const item = `${attempt}#${no}`;
    items.push(item);
    // An attempt that was aborted writes nothing more.
    writer.write(item).catch(() => items.includes(item) && items.splice(items.indexOf(item)));
  };
  const first = Math.ceil(count / 2);
  for (let no = 0; no < first; no++) write(no);
  return () => {
    for (let no = first; no < count; no++) write(no);
  };
}

/** The name of an attempt. */
export function attemptName(runId: string, generation: number, stepName: string, attempt: number): string {
  return `${runId} ${generation} ${stepName} ${attempt}`;
}

/** Takes note of a recorded attempt. */
export function noteStreamed(run: RunFacts, { generation }: Lease, step: StepWrite, _saved: SavedStep): void {
  const { streamed } = run;
  const attempt = attemptName(run.request.id, generation, step.name, step.attempts);
  if (streamed.completed.has(step.name)) return;
  if (step.result.status === "completed") streamed.completed.set(step.name, attempt);
  else if (step.result.status === "retrying") streamed.void.add(attempt);
}

/** Takes note of chunks that were stored. Returns whether one was new. */
export function noteChunks(run: RunFacts, chunks: readonly Chunk[]): boolean {
  const last = chunks.reduce((most, { position }) => Math.max(most, position), 0);
  const isNew = last > run.streamed.last;
  for (const { position, isPermanent } of chunks) {
    if (isPermanent) run.streamed.permanent = Math.max(run.streamed.permanent, position);
  }
  run.streamed.last = Math.max(run.streamed.last, last);
  return isNew;
}

/**
 * Compares the streams of runs with what their attempts have written: S1 what a late reader gets, S2 what a reader has that
 * goes on from where it was, S3 what is under a place.
 */
export async function checkStreams(facts: Facts, truth: Store, runs: Iterable<RunFacts>): Promise<void> {
  for (const run of runs) {
    if (run.isDeleted || run.streamed.written.size === 0) continue;
    const { id } = run.request;
    const text = await truth.readStream(id, STREAM, null, Infinity);
    if (text === null) continue;
    const items = itemsOf(text);
    checkItems(facts, run, items);
    checkPlaces(facts, run, text);
    // Not each time, so that places become old.
    if (facts.writes % 3 === 0) await checkReader(facts, truth, run, items);
  }
}

function checkItems(facts: Facts, run: RunFacts, items: readonly string[]): void {
  const { completed, written } = run.streamed;
  const permanent = [...completed.values()].flatMap((attempt) => written.get(attempt) ?? []);
  const tell = () =>
    `the stream of ${run.request.id} has ${JSON.stringify(items)}, of completed steps are ${JSON.stringify(permanent)}`;
  facts.expect(permanent.every((item, at) => items[at] === item), "S1", tell);
  const open = items.slice(permanent.length);
  const attempt = open[0]?.slice(0, open[0].lastIndexOf("#")); // the name of a step may have one, too
  if (attempt === undefined) return;
  const isOfOne = open.every((item, at) => item === `${attempt}#${at}`);
  const isRecorded = [...completed.values()].includes(attempt) || run.streamed.void.has(attempt);
  facts.expect(isOfOne && !isRecorded && run.ending?.status !== "completed", "S1", tell);
}

function checkPlaces(facts: Facts, run: RunFacts, { chunks }: StreamText): void {
  const { seen } = run.streamed;
  for (const { position, at, items } of chunks) {
    const before = seen.get(`${position} ${at}`);
    facts.expect(
      before === undefined || before === items,
      "S3",
      () => `${run.request.id} has other items at ${position}`,
    );
    seen.set(`${position} ${at}`, items);
  }
}

async function checkReader(facts: Facts, truth: Store, run: RunFacts, items: readonly string[]): Promise<void> {
  const { reader } = run.streamed;
  const text = await truth.readStream(run.request.id, STREAM, reader.place, Infinity);
  if (text === null) return;
  const { chunks, end, isPlace } = text;
  const [first] = chunks;
  const last = chunks.at(-1) ?? end;
  facts.expect(isPlace, "S2", () => `a place of the stream of ${run.request.id} is none any more`);
  if (first !== undefined) {
    if (first.after < reader.place.position) facts.notice("a reader of a stream has items that do not count any more");
    reader.list.splice(first.first, Infinity, ...itemsOf(text));
  } else if (end.position < reader.place.position) reader.list.splice(end.items);
  reader.place = { position: last.position, at: last.at };
  facts.expect(
    JSON.stringify(reader.list) === JSON.stringify(items),
    "S2",
    () => `a reader of ${run.request.id} has ${JSON.stringify(reader.list)}, the stream ${JSON.stringify(items)}`,
  );
}

function itemsOf({ chunks }: StreamText): string[] {
  return chunks.flatMap(({ items }) => JSON.parse(items) as string[]);
}
