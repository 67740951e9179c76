import type { PauseRecord } from "../../src/model/wait.ts";
import { checkResult } from "./child_facts.ts";
import { noteRecord, signalRule } from "./change_facts.ts";
import type { Facts, RunFacts } from "./facts.ts";
import { inboxOf } from "./message_facts.ts";

/** Judges pauses as a store answers them to a worker, and takes note of them. */
export function checkPauses(facts: Facts, run: RunFacts, records: readonly PauseRecord[], wallNow: number): void {
  for (const record of records) checkPause(facts, run, record, wallNow);
}

function checkPause(facts: Facts, run: RunFacts, record: PauseRecord, wallNow: number): void {
  const { id, kind, name, deadlineAt } = record;
  const known = run.pauses.get(id) ?? { id, kind, name, deadlineAt, resolution: null };
  run.pauses.set(id, known);
  facts.expect(
    known.deadlineAt === deadlineAt && known.kind === kind && known.name === name,
    "I5",
    () => `${kind} ${name} of ${run.request.id} was ${JSON.stringify(known)}, and is ${JSON.stringify(record)}`,
  );
  const resolution = record.resolution === null ? null : JSON.stringify(record.resolution);
  facts.expect(
    known.resolution === null || known.resolution === resolution,
    signalRule(run),
    () => `${kind} ${name} of ${run.request.id} ended as ${known.resolution}, and now as ${resolution}`,
  );
  if (kind === "children") checkChildren(facts, run, record);
  else if (known.resolution === null) checkResolution(facts, run, record, wallNow);
  if (known.resolution !== resolution) noteRecord(run, "perhaps");
  known.resolution = resolution;
}

/** A call is over when all its children have ended, and from that commit on. It tells how, the same each time. */
function checkChildren(facts: Facts, run: RunFacts, { name, childCount, child, resolution }: PauseRecord): void {
  const { id } = run.request;
  const pause = run.childPauses.get(name);
  if (pause === undefined) return facts.violate("F7", `${id} has children for ${name}, and nobody has added them`);
  const { members, isOver, total } = pause;
  facts.expect(
    childCount === members.length && (resolution !== null) === isOver,
    "F7",
    () =>
      `${name} of ${id} has ${members.length} of ${total} children, ${isOver ? "" : "not "}all ended: ${childCount}, ${
        JSON.stringify(resolution)
      }`,
  );
  if (total === 1) checkResult(facts, isOver ? members[0] : undefined, child);
}

/** What ended a pause is the signal that was accepted, or its deadline if it has passed. */
function checkResolution(facts: Facts, run: RunFacts, record: PauseRecord, wallNow: number): void {
  const { id, kind, name, deadlineAt, resolution } = record;
  const wait = facts.waits.get(id);
  const accepted = wait?.accepted ?? null;
  const tell = () => `${kind} ${name} of ${run.request.id} took ${JSON.stringify(accepted)}: ${JSON.stringify(record)}`;
  if (accepted !== null || resolution?.outcome === "signal") {
    const isSame = resolution?.outcome === "signal" && accepted?.signalId === resolution.signalId &&
      accepted.payload === resolution.payload;
    return facts.expect(isSame && kind === "wait", signalRule(run), tell);
  }
  if (resolution?.outcome === "messages") {
    const { accepted: known } = inboxOf(facts, run);
    const isOwn = kind === "receive" && record.messages?.every(({ id, name }) => known.get(id)?.name === name);
    return facts.expect(isOwn === true && record.messages!.length > 0, "M1", tell);
  }
  if (resolution?.outcome === "timeout") {
    // A receive also ends when another one closes the inbox.
    const isClosable = [...inboxOf(facts, run).receives.values()].some(({ close }) => close !== null);
    if (kind === "receive" && isClosable) return;
    // What was committed before the clock was set back stays so.
    const hasPassed = deadlineAt !== null && (deadlineAt <= wallNow || facts.jumps > 0);
    facts.expect(hasPassed, "I5", tell);
  }
}
