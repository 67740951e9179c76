import type { Lease } from "../../../src/model/lease.ts";
import type { Chunk } from "../../../src/model/stream.ts";
import { OpenStream } from "../../../src/execution/streams/run_streams.ts";
import type { Store } from "../../../src/store/store.ts";
import { double, over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";
import { replace } from "./replace.ts";

/** Bugs of streams of items. */
export const STREAM_MUTANTS: readonly Mutant[] = [
  {
    name: "a record leaves its items out",
    rule: "the record of a step brings what is not stored",
    store: over((store) => ({
      saveStep: (lease, { chunks: _, ...step }, reports) => store.saveStep(lease, step, reports),
    })),
  },
  {
    name: "items are made permanent before the record",
    rule: "items become permanent in the commit of the record",
    store: over((store) => ({
      saveStep: async (lease, step, reports) => {
        await store.appendItems([{ lease, chunks: step.chunks ?? [] }]);
        return await store.saveStep(lease, step, reports);
      },
    })),
  },
  {
    name: "the items of an attempt stay that another one follows",
    rule: "the record of a failed attempt makes its items void",
    store: over((store) => ({
      saveStep: (lease, step, reports) =>
        store.saveStep(
          lease,
          step.result.status === "retrying"
            ? { ...step, chunks: step.chunks?.filter((one) => !one.isPermanent) ?? [] }
            : step,
          reports,
        ),
    })),
  },
  {
    name: "the items of a failed attempt are permanent",
    rule: "only the record of a step that completed makes items permanent",
    code: () =>
      replace(OpenStream.prototype, "takeLast", (old) =>
        function (this: OpenStream, result) {
          return old.call(this, result.status === "retrying" ? { status: "completed", output: null } : result);
        }),
  },
  {
    name: "one chunk too few is emptied",
    rule: "a chunk makes all void that come after the one it follows",
    store: over((store) => ({
      saveStep: (lease, step, reports) =>
        store.saveStep(lease, {
          ...step,
          chunks: (step.chunks ?? []).map((one) =>
            one.after < one.position - 1 ? { ...one, after: one.after + 1 } : one
          ),
        }, reports),
    })),
  },
  {
    name: "a part counts its items from where its reader began",
    rule: "a part says the index of its first item in the stream",
    store: over((store) => ({
      readStream: async (runId, stream, after, maxLength) => {
        const text = await store.readStream(runId, stream, after, maxLength);
        const least = text?.chunks[0]?.first ?? 0;
        if (text === null || after === null) return text;
        return { ...text, chunks: text.chunks.map((chunk) => ({ ...chunk, first: chunk.first - least })) };
      },
    })),
  },
  {
    name: "a reader is not told which chunk the next one follows",
    rule: "a reader learns which of its items do not count any more",
    store: over((store) => ({
      readStream: async (runId, stream, after, maxLength) => {
        const text = await store.readStream(runId, stream, after, maxLength);
        if (text === null || after === null) return text;
        return { ...text, end: { ...text.end, position: Math.max(text.end.position, after.position) } };
      },
    })),
  },
  {
    name: "the instant of a place is that of the read",
    rule: "a place is proven by the instant of its chunk",
    store: over((store, chance) => ({
      readStream: async (runId, stream, after, maxLength) => {
        const text = await store.readStream(runId, stream, after, maxLength);
        if (text === null) return text;
        return { ...text, chunks: text.chunks.map((chunk) => ({ ...chunk, at: chunk.at + chance.int(50) + 1 })) };
      },
    })),
  },
  {
    name: "items are stored under a lost lease",
    from: 57,
    rule: "items are written under the lease, and after it is lost none are",
    store: over((store) => {
      const leases = new Map<string, Lease>();
      return {
        claim: async (request) => {
          const result = await store.claim(request);
          for (const { run, lease } of result.claims) leases.set(run.id, lease);
          return result;
        },
        appendItems: (writes) =>
          store.appendItems(
            writes.map(({ lease, chunks }) => ({ lease: leases.get(lease.runId) ?? lease, chunks })),
          ),
      };
    }),
  },
  {
    name: "open items count after the end of their lease",
    rule: "open items count under the current lease of a run",
    store: over((store) => withOpenItems(store, false)),
  },
  {
    name: "open items count in a run that has ended",
    from: 11,
    rule: "open items count in a run that has not completed, and kept its lease to its end",
    store: over((store) => withOpenItems(store, true)),
  },
  {
    name: "a chunk is dropped after a failed write",
    rule: "what no answer has acknowledged is sent again",
    client: overClient((store) => {
      const failed = new Set<string>();
      const nameOf = ({ lease }: { lease: Lease }, { stream, position }: Chunk) =>
        `${lease.runId} ${lease.generation} ${stream} ${position}`;
      const leftOut = (lease: Lease, chunks: readonly Chunk[]) =>
        chunks.map((one) => failed.has(nameOf({ lease }, one)) ? { ...one, items: "[]" as Chunk["items"] } : one);
      return {
        appendItems: async (writes) => {
          const sent = writes.map(({ lease, chunks }) => ({ lease, chunks: leftOut(lease, chunks) }));
          return await store.appendItems(sent).catch((error) => {
            for (const write of writes) for (const one of write.chunks) failed.add(nameOf(write, one));
            throw error;
          });
        },
        saveStep: (lease, step, reports) =>
          store.saveStep(lease, { ...step, chunks: leftOut(lease, step.chunks ?? []) }, reports),
      };
    }),
  },
  {
    name: "a retry copies open items, too",
    rule: "the streams of a retry begin with what is permanent",
    database: (store, database) =>
      double(store, {
        enqueue: async (runs) => {
          const open =
            "SELECT rowid, generation FROM holdfast_chunks WHERE generation IS NOT NULL AND items IS NOT NULL";
          const rows = database.prepare(open).all();
          database.exec("UPDATE holdfast_chunks SET generation = NULL WHERE items IS NOT NULL");
          const adding = store.enqueue(runs);
          await adding.catch(() => {});
          const restore = database.prepare("UPDATE holdfast_chunks SET generation = ? WHERE rowid = ?");
          for (const { rowid, generation } of rows) restore.run(generation!, rowid!);
          return await adding;
        },
      }),
  },
];

/** Shows open items that do not count: those of runs that have ended, or of those that have not. */
function withOpenItems(store: Store, isOfEnded: boolean): Partial<Store> {
  const stored = new Map<string, Chunk[]>();
  return {
    appendItems: async (writes) => {
      const held = await store.appendItems(writes);
      for (const [at, { lease, chunks }] of writes.entries()) {
        if (held[at]) stored.set(lease.runId, [...stored.get(lease.runId) ?? [], ...chunks]);
      }
      return held;
    },
    readStream: async (runId, stream, after, maxLength) => {
      const text = await store.readStream(runId, stream, after, maxLength);
      const from = Math.max(text?.end.position ?? 0, after?.position ?? 0);
      const more = (stored.get(runId) ?? []).filter((one) => one.stream === stream && one.position > from);
      const last = more.at(-1);
      if (text === null || text.isEnded !== isOfEnded || maxLength === 0 || last === undefined) return text;
      const chunks = [...text.chunks, ...more.map((one) => ({ ...one, at: text.end.at }))];
      const end = { position: last.position, at: text.end.at, items: last.first + last.count, bytes: last.size };
      return { ...text, chunks, end };
    },
  };
}
