import { OpenStream } from "../../../src/execution/streams/run_streams.ts";
import { over } from "./doubles.ts";
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
];
