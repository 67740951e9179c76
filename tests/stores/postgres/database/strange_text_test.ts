import assert from "node:assert/strict";
import type { HoldDetails } from "../../../../src/model/hold.ts";
import type { Store } from "../../../../src/store/store.ts";
import { MemoryStore } from "../../../../src/stores/memory/memory_store.ts";
import type { ValuePart } from "../../../../src/store/run_query.ts";
import { FakeHost } from "../../../support/fake_host.ts";
import {
  aClaimRequest,
  aFailure,
  aHold,
  aKnownJob,
  aLine,
  aLogged,
  aPause,
  aProgress,
  aRun,
  aStep,
} from "../../../support/fixtures.ts";
import { FactReader } from "../../../support/fact_reader.ts";
import { startServer } from "../server.ts";
import { getLogs, getRuns, getSteps, getWaits } from "../../../../src/store/reads.ts";

const server = startServer();

// Characters that the database cannot keep, and the one that marks their escapes; then what looks like escapes.
const TEXTS = ["\0", "\ud800", "\udc00x", "\ue000", "\ue0000000", "\\u0000", '\\"\ue000\\\\u0000"', "ä😀'$1%s$$"];

for (const [n, text] of TEXTS.entries()) {
  Deno.test({
    name: `PostgresStore answers like MemoryStore with strange text, case ${n + 1}`,
    ignore: server === null,
    fn: async () => {
      const host = new FakeHost();
      const stores: Store[] = [new MemoryStore({ host }), await server!.open(host)]; // ignored without a server
      try {
        const script = await scriptOf(text);
        const [expected, found] = [await script(stores[0]!), await script(stores[1]!)];
        assert.deepEqual(found, expected);
      } finally {
        for (const store of stores) await store.close();
      }
    },
  });
}

Deno.test({
  name: "PostgresStore cuts no part of a value within an escape, and goes on from a number of characters",
  ignore: server === null,
  fn: async () => {
    await using store = await server!.open(); // ignored without a server
    // An escape has 7 bytes: the end of a part comes to each of its places.
    const values = [0, 1, 2, 3, 4, 5, 6].map((before) => JSON.stringify("a".repeat(before) + "\ue000€".repeat(15_000)));
    const runs = values.map((payload) => aRun({ payload }));
    await store.enqueue(runs);

    const read = await Promise.all(runs.map(({ id }) => readFrom(store, id, 0)));
    const rest = await readFrom(store, runs[0]!.id, 7); // as a package did that counted characters

    assert.deepEqual(read, values);
    assert.equal(rest, values[0]!.slice(3)); // without a quotation mark, an escape of 5 characters and a letter
  },
});

/** Reads the input of a run from a place on. */
async function readFrom(store: Store, runId: string, from: number | null): Promise<string> {
  const parts: string[] = [];
  while (from !== null) {
    const part: ValuePart = (await store.readValue({ of: "run", runId, value: "payload" }, from))!;
    parts.push(new TextDecoder().decode(part.bytes));
    from = part.next;
  }
  return parts.join("");
}

/** Writes a string wherever there is place for one, and reads all of it. */
function scriptOf(text: string): (store: Store) => Promise<unknown> {
  const value = JSON.stringify({ [text]: text });
  const run = aRun({
    payload: value,
    input: JSON.stringify(text),
    labels: { [`l${text}`]: text },
    idempotencyKey: `i${text}`,
    concurrencyKey: `c${text}`,
    schemaPrint: text,
  });
  const retry = aRun();
  const [child, scheduled] = [aRun({ payload: value }), aRun({ schedule: { name: `s${text}`, slotAt: null } })];
  const wait = aPause({ name: `w${text}`, metadata: value });
  const children = aPause({ kind: "children", name: text, children: { total: 1, from: 0, runs: [child] } });
  const line = aLine(run.id, { stepName: text, message: text, data: value });
  const [first, second] = [aClaimRequest({ limit: 1, workerId: text }), aClaimRequest({ limit: 1, workerId: text })];
  const third = aClaimRequest({ limit: 1 });
  return async (store) => {
    await store.migrate();
    await store.enqueue([run]);
    const again = await store.enqueue([{ ...run, id: child.id }]);
    const [claim] = (await store.claim(first)).claims;
    const failure = aFailure({ message: text, name: text, stack: text, cause: aFailure({ message: text }) });
    await store.saveStep(claim!.lease, aStep({ name: `s${text}`, result: { status: "completed", output: value } }), []);
    const delayed = { status: "retrying", failure, delayMs: 5 } as const;
    await store.saveStep(claim!.lease, aStep({ name: `r${text}`, index: 1, result: delayed }), [
      aLogged({ stepName: text, message: text, data: JSON.parse(value) }),
      aProgress({ current: 1, message: text }, 2),
    ]);
    await store.pause(claim!.lease, { pauses: [wait, children], retryAt: null, park: true, reports: [] });
    const signal = { signalId: text, payload: JSON.parse(value) };
    const signalled = [await store.signal(wait.id, signal), await store.signal(wait.id, signal)];
    await store.appendLogs([line]);
    const held = (await store.claim(second)).claims[0]!;
    const details: HoldDetails = {
      isNew: { kind: "step", name: text },
      unasked: [],
      issues: [{ message: text, path: [text] }],
    };
    await store.saveInput(held.lease, `p${text}`, value);
    await store.hold(held.lease, aHold({ message: text, print: text, details }), []);
    const hold = await store.getHold(run.id);
    await store.claim(aClaimRequest({ limit: 0, triesHeld: true, jobs: [aKnownJob({ print: `${text}2` })] }));
    await store.resumeHeld(run.id, false);
    const schedule = { name: `s${text}`, jobName: run.jobName, options: value, declared: value, error: text };
    const times = { pausedAt: null, pausedBy: null, nextAt: 1, lastSlotAt: null, lastRunId: null, skipped: 0 };
    const stored = await store.setSchedule({ ...schedule, ...times }, null);
    const next = { nextAt: 2, lastSlotAt: 1, error: text };
    const firing = { schedule: stored!, next, run: scheduled, skipsOverlap: false, skipped: 0 };
    const fired = await store.fireSchedule(firing);
    const pause = await store.pauseJob("other", { by: text, note: text });
    const ended = (await store.claim(third)).claims[0]!;
    await store.finish(ended.lease, { status: "failed", failure, failedStepName: text }, []);
    const retried = await store.enqueue([aRun({ id: retry.id, retriggerOf: { runId: run.id, from: "failure" } })]);
    const state = await store.getRunState(run.id);
    return {
      again,
      claim,
      signalled,
      held,
      hold,
      stored: { ...stored, version: null },
      fired: fired?.run,
      pause,
      schedules: (await store.getSchedules(`s${text}`)).schedules.map((one) => ({ ...one, version: null })),
      input: await store.getInput(run.id, `p${text}`),
      history: await store.getHistory(run.id),
      steps: await getSteps(store, run.id),
      part: await store.readSteps(run.id, `s${text}`, 10),
      waits: await getWaits(store, run.id),
      wait: await store.getWait(wait.id),
      logs: await getLogs(store, run.id),
      runs: await getRuns(store, { labels: { [`l${text}`]: text } }),
      failed: (await store.findRuns({ failureKind: "error" })).ids,
      child: await store.readChildren(children.id, 0, 100),
      retried: retried[0]!.run,
      copied: (await store.getHistory(retry.id))!.copied!.unfinished.map((record) => `${record.kind} ${record.name}`)
        .sort(),
      pauses: state?.pauses,
      output: await readWhole(store, run.id, `s${text}`),
      facts: (await new FactReader(store).readAll()).map(({ fact, value }) => ({ fact, value })),
    };
  };
}

async function readWhole(store: Store, runId: string, stepName: string): Promise<string> {
  const part = await store.readValue({ of: "step", runId, stepName, value: "output" }, 0);
  return new TextDecoder().decode(part!.bytes);
}
