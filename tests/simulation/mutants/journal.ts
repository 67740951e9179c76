import { JournalReader } from "../../../src/events/journal_reader.ts";
import type { Cursor } from "../../../src/model/journal.ts";
import { type Fact, toFact } from "../../../src/model/fact.ts";
import { latestProgress } from "../../../src/model/execution_report.ts";
import { MemoryJournal } from "../../../src/stores/memory/journal.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { MemoryRuns } from "../../../src/stores/memory/runs.ts";
import { NotedFacts } from "../../../src/stores/sqlite/journal/noted_facts.ts";
import { SqliteDatabase } from "../../../src/stores/sqlite/sqlite_database.ts";
import { AUTH } from "../auth.ts";
import { overClient, withStreams } from "./doubles.ts";
import type { Program } from "../program.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of the journal, and of what follows it. */
export const JOURNAL_MUTANTS: readonly Mutant[] = [
  {
    name: "facts are kept after a rollback",
    from: 80,
    rule: "J2: what was not committed is not in the journal",
    isOfSqlite: true,
    code: () => {
      let lost: readonly Fact[] = [];
      const undoFacts = replace(NotedFacts.prototype, (original) => ({
        clear() {
          lost = this.all;
          original.clear.call(this);
        },
      }));
      const undoDatabase = replace(SqliteDatabase.prototype, (original) => ({
        rollBack() {
          original.rollBack.call(this);
          this.facts.note(...lost);
        },
      }));
      return () => {
        undoFacts();
        undoDatabase();
      };
    },
  },
  {
    name: "facts are kept after a refusal",
    rule: "J2: a call that is refused notes nothing",
    code: () => {
      const undoJournal = replace(MemoryJournal.prototype, () => ({ rollBack() {} }));
      const undoRuns = replace(MemoryRuns.prototype, (original) => ({
        getUnder(lease) {
          const run = this.get(lease.runId);
          if (run !== undefined && this.findUnder(lease) === undefined) this.journal.note([run.seq, "failed"]);
          return original.getUnder.call(this, lease);
        },
      }));
      return () => {
        undoJournal();
        undoRuns();
      };
    },
  },
  {
    name: "facts are noted again when a call is repeated",
    rule: "J2: what is repeated is told once",
    code: () => {
      const noted = new Map<string, readonly Fact[]>();
      let last: Fact[] = [];
      let again: readonly Fact[] = [];
      const undoJournal = replace(MemoryJournal.prototype, (original) => ({
        note(...facts) {
          last.push(...facts);
          original.note.call(this, ...facts);
        },
        commit(now) {
          original.note.call(this, ...again);
          original.commit.call(this, now);
        },
      }));
      const undoStore = replace(MemoryStore.prototype, (original) => ({
        saveStep(lease, step, reports) {
          const key = JSON.stringify([lease, step.name, step.attempts]);
          last = [];
          again = noted.get(key) ?? [];
          const saved = original.saveStep.call(this, lease, step, reports);
          again = [];
          if (last.length > 0 && !noted.has(key)) noted.set(key, last);
          return saved;
        },
      }));
      return () => {
        undoJournal();
        undoStore();
      };
    },
  },
  {
    name: "reports are kept again when a call is repeated",
    rule: "J2: a report is told once",
    code: () =>
      replace(MemoryRuns.prototype, (original) => ({
        takeReports(run, reports) {
          original.takeReports.call(this, run, reports);
          return run.lease === null ? [] : [...reports];
        },
      })),
  },
  {
    name: "reports that come again set the progress back",
    from: 49,
    // Branches that report and record side by side, and answers that are lost: older writes come again after newer ones.
    plan: (plan) => ({
      ...plan,
      reliability: { ...plan.reliability, answerLost: 0.2, slowAnswer: 0.1 },
      requests: plan.requests.map((entry) =>
        entry.request.ask === "trigger" ? { ...entry, request: { ...entry.request, program: REPORTING } } : entry
      ),
    }),
    rule: "J3: the progress of a run is the latest in the journal",
    code: () =>
      replace(MemoryRuns.prototype, (original) => ({
        takeReports(run, reports) {
          const added = original.takeReports.call(this, run, reports);
          const progress = latestProgress(reports);
          if (run.lease !== null && progress !== null) run.progress = JSON.stringify(progress);
          return added;
        },
      })),
  },
  {
    name: "a report follows the end of its run",
    rule: "J2: nothing is reported after the end",
    code: () => {
      let held: Fact[] = [];
      const undoRuns = replace(MemoryRuns.prototype, () => ({
        noteReports(run, reports) {
          held = this.takeReports(run, reports).map((report) => toFact(run.seq, report));
        },
      }));
      const undoJournal = replace(MemoryJournal.prototype, (original) => ({
        commit(now) {
          this.note(...held);
          held = [];
          original.commit.call(this, now);
        },
      }));
      return () => {
        undoRuns();
        undoJournal();
      };
    },
  },
  {
    name: "the state of a run and its place are read at two moments",
    rule: "J4: after the state of a run comes what is not in it",
    client: overClient((store) => ({
      getRunState: async (runId) => {
        const state = await store.getRunState(runId);
        const place = await store.findCursor(null);
        return state === null ? null : { ...state, place: place! };
      },
    })),
  },
  {
    name: "a trim goes unnoticed",
    from: 14,
    rule: "J1: who reads what is gone is told so",
    code: () =>
      replace(MemoryJournal.prototype, (original) => ({
        read(after, maxLength) {
          let page = original.read.call(this, after, maxLength);
          for (let from = after + 1; page === null && from <= this.end.position; from++) {
            page = original.read.call(this, from, maxLength);
          }
          return page;
        },
      })),
  },
  {
    name: "the newest row is trimmed if it is large",
    from: 85,
    rule: "J7: the newest row is kept",
    code: () =>
      replace(MemoryJournal.prototype, (original) => ({
        read(after, maxLength) {
          const page = original.read.call(this, after, maxLength);
          const { position, facts } = page?.rows.at(-1) ?? { position: -1, facts: [] };
          return position === this.end.position && JSON.stringify(facts).length > 1_000 ? null : page;
        },
      })),
  },
  {
    name: "a cursor is known by its position alone",
    rule: "J5: a cursor of another journal is none",
    code: () =>
      replace(MemoryJournal.prototype, (original) => ({
        find(cursor) {
          const row = cursor === null ? undefined : this.read(cursor.position - 1, 1)?.rows[0];
          const isRow = row !== undefined && row.position === cursor?.position;
          return original.find.call(this, isRow ? { position: row.position, at: row.at } : cursor);
        },
      })),
  },
  {
    name: "an id comes before its data",
    rule: "J5: an id covers what came before it",
    fetch: withStreams((messages) => {
      const isId = (message: string) => message.startsWith("id:");
      return [...messages.filter(isId), ...messages.filter((message) => !isId(message))];
    }),
  },
  {
    name: "a stream that is resumed shows all tenants' runs",
    rule: "J4: what is replayed passes the same scope",
    auth: {
      authenticate: (request) => {
        const isResumed = request.headers.has("last-event-id") || request.url.includes("lastEventId");
        return `${request.headers.get("x-org")}${isResumed ? "*" : ""}`;
      },
      tenant: (org) => org.replace("*", ""),
      onRunAccess: (org, run, ...rest) => AUTH.onRunAccess!(org.replace("*", ""), run, ...rest),
      scopeRuns: (org, filter) => org.endsWith("*") ? filter : { ...filter, labels: { ...filter.labels, org } },
    },
  },
  {
    name: "streams that share a fan-out begin where its first one did",
    from: 160,
    rule: "J4: a stream leaves nothing out",
    // Many clients follow the same runs, and begin while the events of the runs are being read.
    plan: (plan) => ({
      ...plan,
      reliability: { ...plan.reliability, latency: 2, slowAnswer: 0.1 },
      maxStreamMs: 100,
      pageLength: 500,
      requests: plan.requests.flatMap((request) => {
        if (request.request.ask !== "watch" && request.request.ask !== "feed") return [request];
        const manner = { isStranger: false, readMs: 0, resumesBy: "header" as const, foreignId: null };
        return Array.from({ length: 6 }, (_, i) => ({ ...request, at: request.at + i * 20, manner }));
      }),
    }),
    code: () => {
      const first = new WeakMap<JournalReader, Cursor>();
      return replace(JournalReader.prototype, (original) => {
        const { get } = Object.getOwnPropertyDescriptor(original, "readPlace")!;
        return {
          attach(consumer, place) {
            if (get!.call(this) === null) first.set(this, place);
            return original.attach.call(this, consumer, place);
          },
          get readPlace() {
            return get!.call(this) === null ? null : first.get(this as JournalReader) ?? null;
          },
        };
      });
    },
  },
  {
    name: "a consumer is attached too late",
    rule: "J4: a stream leaves nothing out",
    code: () => attachingAt(3),
  },
  {
    name: "a consumer is attached too early",
    from: 7,
    rule: "J4: a stream tells each fact once",
    code: () => attachingAt(-3),
  },
];

/** A program of three branches that report their progress between steps. */
const REPORTING: Program = [{
  do: "all",
  branches: [1, 2, 3].map((branch) =>
    [10, 20, 30].flatMap((current): Program => [
      { do: "progress", current: current + branch },
      {
        do: "step",
        name: `${branch}-${current}`,
        ms: branch * 7,
        failures: 0,
        attempts: 1,
        delay: 0,
        timeout: null,
        heeds: false,
      },
    ])
  ),
}];

/** Replaces methods of a class until the returned function is called. */
function replace<T extends object>(prototype: T, methods: (original: T) => Partial<T> & ThisType<T>): () => void {
  const descriptors = Object.getOwnPropertyDescriptors(prototype);
  const original = Object.create(null, descriptors) as T;
  const replaced = Object.getOwnPropertyDescriptors(methods(original));
  const names = Object.keys(replaced) as (keyof T)[];
  for (const name of names) Object.defineProperty(prototype, name, { ...replaced[name as never], configurable: true });
  return () => {
    for (const name of names) Object.defineProperty(prototype, name, descriptors[name]!);
  };
}

/** Consumers are attached so many facts after their place. */
function attachingAt(facts: number): () => void {
  return replace(JournalReader.prototype, (original) => ({
    attach(consumer, { position, at }) {
      return original.attach.call(this, consumer, { position: Math.max(0, position + facts), at });
    },
  }));
}
