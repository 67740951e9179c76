import type { NewRun } from "../../../src/store/new_run.ts";
import { endChild } from "../../../src/stores/memory/children.ts";
import type { KeptRun } from "../../../src/stores/memory/records.ts";
import { MemoryRuns } from "../../../src/stores/memory/runs.ts";
import { over, overClient } from "./doubles.ts";
import type { Plan } from "../plan.ts";
import type { Mutant } from "./mutant.ts";
import { replace } from "./replace.ts";
import { getRun } from "../../../src/store/reads.ts";

/** Bugs of child runs. */
export const CHILD_MUTANTS: readonly Mutant[] = [
  {
    name: "the end of a child reaches its parent in a second commit",
    rule: "F7: the last child resolves the call in the commit of its end",
    code: () => {
      const late: KeptRun[] = [];
      const stops = [
        replace(MemoryRuns.prototype, "end", (end) =>
          function (run, ending, now) {
            const { parent } = run;
            run.parent = null;
            end.call(this, run, ending, now);
            run.parent = parent;
            late.push(run);
          }),
        // The next call that brings reports makes up for it.
        replace(MemoryRuns.prototype, "noteReports", (note) =>
          function (run, reports) {
            for (const ended of late.splice(0)) endChild(ended, ended.completedAt!);
            note.call(this, run, reports);
          }),
      ];
      return () => stops.forEach((stop) => stop());
    },
  },
  {
    name: "a child is claimed whose parent has ended",
    rule: "F7: no child begins after the end of its parent",
    code: () => leaveChildren(({ status }) => status === "pending"),
  },
  {
    name: "a child that waits is left when its parent ends",
    from: 8,
    rule: "F7: the children of an ended parent are cancelled",
    code: () => leaveChildren(({ status }) => status === "waiting"),
  },
  {
    name: "children of ended parents are never cancelled",
    rule: "F7: the children of an ended parent are cancelled",
    store: (make, host) => {
      let isClaiming = false;
      const stop = replace(MemoryRuns.prototype, "end", (end) =>
        function (run, ending, now) {
          if (!isClaiming || ending.status !== "cancelled") end.call(this, run, ending, now);
        });
      return over((store) => ({
        claim: async (request) => {
          isClaiming = true;
          const claimed = store.claim(request); // what it does is done when it answers a promise
          isClaiming = false;
          return { ...await claimed, cancelled: [], hasMore: false };
        },
        close: () => (stop(), store.close()),
      }))(make, host);
    },
  },
  {
    name: "a repeated slice makes its children again",
    from: 28,
    rule: "F7: what a call has is known by its name and the number of the child",
    store: over((store) => {
      const counts = new Map<string, number>();
      return {
        pause: (lease, request) => {
          const pauses = request.pauses.map((pause) => {
            if (pause.children === null) return pause;
            const key = `${lease.runId} ${pause.name}`;
            const from = Math.max(counts.get(key) ?? 0, pause.children.from);
            counts.set(key, from + pause.children.runs.length);
            return { ...pause, children: { ...pause.children, from } };
          });
          return store.pause(lease, { ...request, pauses });
        },
      };
    }),
  },
  {
    name: "a parent sees how the retry of its child ended",
    from: 15,
    rule: "F7: an outcome never changes",
    plan: withRetriedChildren,
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        for (const pause of result.claims.flatMap(({ pauses }) => pauses)) {
          const failed = pause.child === null ? null : await getRun(store, pause.child.run.id);
          const retry = failed?.retriggeredAs == null ? null : await getRun(store, failed.retriggeredAs);
          if (retry?.status !== "completed") continue;
          pause.child = { ...pause.child!, status: "completed", output: JSON.stringify(retry.output), failure: null };
        }
        return result;
      },
    })),
  },
  {
    name: "a retry forgets children of a former name",
    rule: "F7: a retry takes over the children of its job, by whichever of its names",
    parts: ["children", "renames"],
    client: overClient((store) => ({
      pause: (lease, request) => {
        const pauses = request.pauses.map((pause) => {
          if (pause.children === null) return pause;
          const runs = pause.children.runs.map((run) => ({ ...run, aliases: [] }));
          return { ...pause, children: { ...pause.children, runs } };
        });
        return store.pause(lease, { ...request, pauses });
      },
    })),
  },
  {
    name: "a child that is deleted takes its result with it",
    from: 3,
    rule: "F7: a result is kept for a parent that has not ended",
    code: () =>
      replace(MemoryRuns.prototype, "remove", (remove) =>
        function (run, by, now) {
          for (const member of run.memberships) member.isLost = true;
          return remove.call(this, run, by, now);
        }),
  },
  {
    name: "a child does not inherit the priority of its parent",
    rule: "F7: a child inherits labels, priority and fairness key",
    parts: ["flow", "children"],
    client: overClient((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return { ...result, claims: result.claims.map((claim) => ({ ...claim, priority: 0 })) };
      },
    })),
  },
  {
    name: "a step that is executed again triggers another run",
    from: 2,
    rule: "I12: a step triggers one run, however often it is executed",
    client: (store) => {
      let again = 0;
      const known = new Set<string>();
      const rename = (run: NewRun): NewRun => {
        const id = known.has(run.id) ? `${run.id}-${++again}` : run.id;
        known.add(run.id);
        return { ...run, id };
      };
      return overClient((store) => ({ enqueue: (runs) => store.enqueue(runs.map(rename)) }))(store, null!);
    },
  },
];

/** Lets some children go on when their parent ends. */
function leaveChildren(isLeft: (child: KeptRun) => boolean): () => void {
  return replace(MemoryRuns.prototype, "end", (end) =>
    function (run, ending, now) {
      end.call(this, run, ending, now);
      for (const child of this.open) {
        if (child.parent?.run !== run || !isLeft(child)) continue;
        child.parent.pause = { ...child.parent.pause, children: null, state: { status: "pending" } };
      }
    });
}

/** Children that have failed are retried again and again, so that some retries end before the parent goes on. */
function withRetriedChildren(plan: Plan): Plan {
  const retries = Array.from({ length: 80 }, (_, no) => ({
    at: 300 + 50 * no,
    process: no % 3,
    request: { ask: "retrigger", which: (7 * no % 20) / 20, from: "failure", of: "children" } as const,
    manner: null,
  }));
  return { ...plan, requests: [...plan.requests, ...retries] };
}
