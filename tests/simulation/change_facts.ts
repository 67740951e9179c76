import type { Lease } from "../../src/model/lease.ts";
import type { PauseRecord } from "../../src/model/wait.ts";
import type { Claim, ClaimRequest, ClaimResult } from "../../src/store/claim.ts";
import type { NewHold } from "../../src/store/hold_record.ts";
import type { NewPause } from "../../src/store/pause_request.ts";
import { changeProgram, fits } from "./changed_program.ts";
import { type ChangePlan, type Code, executingCode, identityOf, LAST_CODE } from "./changes_plan.ts";
import type { Facts, RunFacts } from "./facts.ts";
import type { Situation } from "./situations.ts";
import type { Program } from "./program.ts";

/** What the committed history says of a run whose code changes. */
export interface ChangeFacts {
  /** The codes that have recorded something in it, or in the runs of which it has copies. */
  recordedBy: Set<Code>;
  /** The generation of the lease under which it was held; `null`: it is not held. */
  heldUnder: number | null;
  /** Whether it was held since its last claim. */
  wasHeld: boolean;
  /** How often it was held. */
  holds: number;
  /** Whether a claim may have made it due for some code. */
  isOffered: boolean;
  /** The deploys that have held it since its last record: those that certainly count, and those that may. */
  tried: { certainly: Set<Code>; perhaps: Set<Code>; ever: Set<Code> };
  /** Whether somebody has resumed it with what is new. */
  continues: boolean;
  /** Whether that is so, or was for a run of which it has copies. */
  hasContinued: boolean;
  /** Whether it, or a run of which it has copies, has recorded something under two names: then no code fits. */
  hasTwoNames: boolean;
  /** The answers of its patches, by name. */
  patches: Map<string, boolean>;
  /** What each lease began with, by generation: the kinds and names of all records, which are copies, and the last number. */
  claimed: Map<number, { names: Set<string>; copies: Set<string>; recorded: number }>;
  /** What executes it, by the generation of the lease. */
  bodies: Map<number, ChangingBody>;
}

/** An execution of a job's function. */
export interface ChangingBody {
  /** The records that its program has asked for, as kind and name. */
  readonly asked: ReadonlySet<string>;
  /** The steps that it has asked for before an instant, and that have neither begun nor been answered. */
  stepsNotBegun(before: number): string[];
}

/** What is known of a new run; `source`: the run whose history it copies. */
export function newChangeFacts(source: ChangeFacts | null): ChangeFacts {
  return {
    recordedBy: new Set(source?.recordedBy),
    heldUnder: null,
    wasHeld: false,
    holds: 0,
    isOffered: false,
    tried: { certainly: new Set(), perhaps: new Set(), ever: new Set() },
    continues: false,
    hasContinued: source?.hasContinued ?? false,
    hasTwoNames: source?.hasTwoNames ?? false,
    patches: new Map(source?.patches),
    claimed: new Map(),
    bodies: new Map(),
  };
}

/** The code whose program and definition execute a run in a process. */
export function codeFor({ changes }: Facts, { request }: RunFacts, code: Code): Code {
  return changes === null ? 1 : executingCode(changes, request.jobName, request.version, code);
}

/** Something may have been recorded in a run, or certainly was: who has held it before may try again. */
export function noteRecord({ changed, lastAnswer }: RunFacts, certainty: "perhaps" | "certainly"): void {
  if (lastAnswer !== null) lastAnswer.isLast = false;
  changed.tried.perhaps.clear();
  if (certainty === "certainly") changed.tried.certainly.clear();
}

/** The rule that a signal of a run obeys. */
export function signalRule({ changed }: RunFacts): "I4" | "I-D4" {
  return changed.holds > 0 ? "I-D4" : "I4";
}

/** A worker has recorded something in a run. */
export function noteRecordBy(facts: Facts, run: RunFacts, code: Code): void {
  run.changed.recordedBy.add(codeFor(facts, run, code));
  noteRecord(run, "certainly");
}

/** A worker has begun pauses, or asked for them again. That is a record only if one was prepared, or is over. */
export function notePauses(
  facts: Facts,
  run: RunFacts,
  { generation }: Lease,
  answered: readonly PauseRecord[],
  code: Code,
): void {
  if (answered.length === 0) return;
  const { changed, lastAnswer } = run;
  if (lastAnswer !== null) lastAnswer.isLast = false;
  changed.recordedBy.add(codeFor(facts, run, code));
  const before = changed.claimed.get(generation)?.recorded ?? Infinity;
  const isRecorded = answered.some(({ preparedNo, resolution }) =>
    Math.max(preparedNo ?? 0, resolution?.recordedNo ?? 0) > before
  );
  if (isRecorded) noteRecord(run, "certainly");
}

/** A worker takes a run. */
export function noteClaimed(
  facts: Facts,
  run: RunFacts,
  claim: Claim,
  { code, triesHeld }: { code: Code; triesHeld: boolean },
): void {
  const { changed, request: { id } } = run;
  const wasHeld = changed.heldUnder !== null;
  facts.expect(
    wasHeld === triesHeld,
    "I-D8",
    () => `${id} was ${wasHeld ? "" : "not "}held, and was claimed by a claim of ${triesHeld ? "held" : "other"} runs`,
  );
  facts.expect(
    claim.isResumed === wasHeld && claim.continues === changed.continues,
    "I-D7",
    () =>
      `${id} was ${wasHeld ? "" : "not "}held and goes on ${
        changed.continues ? "" : "not "
      }anyway, and was claimed as ${JSON.stringify({ isResumed: claim.isResumed, continues: claim.continues })}`,
  );
  if (wasHeld) {
    facts.expect(
      !isTried(run, code),
      "I-D7",
      () => `code ${code} has tried ${id} since it recorded something, and tries it again`,
    );
    facts.notice(
      changed.tried.ever.has(code) ? "code tried a held run again after a record" : "a deploy freed a held run",
    );
    if ([...run.waits.values()].some(({ accepted }) => accepted !== null)) {
      facts.notice("a held run that had taken a signal went on");
    }
  }
  if (claim.steps.length + claim.pauses.length > 0) {
    const isFitting = mustGoOn(facts, run, codeFor(facts, run, code));
    if (isFitting) facts.notice("code that fits went on with what was recorded");
    if (isFitting && claim.copied !== null) facts.notice("code that fits went on with copies");
  }
  changed.heldUnder = null;
  changed.wasHeld = false;
  changed.isOffered = false;
  const { steps, pauses, copied } = claim;
  const entries = [
    ...steps.map(({ name, recordedNo }) => ({ key: `step ${name}`, at: recordedNo })),
    ...pauses.filter(({ kind }) => kind !== "patch").map(({ kind, name, preparedNo, resolution }) => ({
      key: `${kind} ${name}`,
      at: preparedNo ?? resolution?.recordedNo ?? Infinity,
    })),
  ];
  changed.claimed.set(claim.lease.generation, {
    names: new Set(entries.map(({ key }) => key)),
    copies: new Set(entries.filter(({ at }) => copied !== null && at <= copied.upTo).map(({ key }) => key)),
    recorded: claim.lease.recorded,
  });
}

/** Whether code has certainly tried a held run since its last record. */
function isTried(run: RunFacts, code: Code): boolean {
  return run.changed.tried.perhaps.has(code) && !hasDeadline(run);
}

// A deadline that has passed is a record, too: whether it counts, the store decides with the claim.
function hasDeadline({ pauses }: RunFacts): boolean {
  return [...pauses.values()].some(({ deadlineAt, resolution }) => deadlineAt !== null && resolution === null);
}

/** A claim makes held runs due. Answers those that no code was offered before, and that this one has not tried. */
export function noteOffers(facts: Facts, { jobs, triesHeld, limit }: ClaimRequest, code: Code): RunFacts[] {
  if (!triesHeld || limit === 0) return [];
  return facts.open().filter((run) => {
    const { changed, request } = run;
    const isKnown = jobs.some(({ name, version }) => name === request.jobName && version === request.version);
    if (changed.heldUnder === null || !isKnown) return false;
    const isNew = !changed.isOffered && !changed.tried.certainly.has(code);
    if (!isTried(run, code)) changed.isOffered = true;
    return isNew;
  });
}

/** Nothing keeps a claim from taking a run that it has made due, if it has room for more. */
export function checkOffered(
  facts: Facts,
  { limit }: ClaimRequest,
  { claims, hasMore }: ClaimResult,
  offered: readonly RunFacts[],
): void {
  if (hasMore || claims.length >= limit || facts.definitions !== null) return;
  for (const { changed, request: { id, concurrencyKey, jobName }, isUnread, hasEnded } of offered) {
    const isFree = concurrencyKey === null && !facts.flow.paused.has(jobName);
    facts.expect(
      !isFree || isUnread || hasEnded || changed.heldUnder === null,
      "I-D7",
      () => `a claim of code that has not tried ${id} left it held`,
    );
  }
}

/** Whether a code has to go on with what a run has recorded. */
function mustGoOn(facts: Facts, { changed, request: { payload } }: RunFacts, code: Code): boolean {
  const { changes } = facts;
  if (changes === null) return true;
  const { program } = JSON.parse(payload!) as { program: Program };
  // Code without a patch does not hold a run because of it, and goes past what the patch has let in.
  const isPassed = code === 2 && changed.recordedBy.has(1) && changed.recordedBy.has(2) &&
    [...changed.patches.values()].includes(true);
  if (isPassed) {
    facts.notice("a patch that was new was passed by code without it");
    return false;
  }
  return !changed.hasContinued && !changed.hasTwoNames &&
    [...changed.recordedBy].every((by) => fits(program, changes, by, code));
}

/** Judges whether a run that a worker holds may be held. Answers whether it is held by this call. */
export function checkHold(
  facts: Facts,
  run: RunFacts,
  { generation }: Lease,
  { code: reason, details, message }: NewHold,
  code: Code,
): boolean {
  const { changed, request: { id } } = run;
  if (changed.heldUnder === generation) return false;
  const own = codeFor(facts, run, code);
  const { changes } = facts;
  facts.expect(
    !mustGoOn(facts, run, own),
    "I-D1",
    () => `${id} was recorded by ${describe(facts, run)}, fits code ${own}, and is held: ${message}`,
  );
  facts.expect(!changed.continues, "I-D7", () => `${id} was to go on with what is new, and is held: ${message}`);
  const executed = [...facts.executing].filter((one) => one.run === run && one.generation === generation);
  facts.expect(
    executed.every(({ isAlive }) => !isAlive()),
    "I-D3",
    () => `${id} is held while ${executed.map(({ name }) => name)} is executed`,
  );
  const recorded = changed.claimed.get(generation)?.names ?? new Set();
  for (const { kind, name } of details.unasked) {
    facts.expect(
      recorded.has(`${kind} ${name}`) && !changed.bodies.get(generation)?.asked.has(`${kind} ${name}`),
      "I-D1",
      () => `${id} is held because its job has not asked for ${kind} ${name}: ${message}`,
    );
  }
  const renamed = details.unasked.filter(({ kind, name }) => kind === "step" && isRenamed(changes, name));
  if (renamed.length > 0) facts.notice("a renamed step was held before it was executed again");
  const copies = changed.claimed.get(generation)?.copies ?? new Set();
  if (renamed.some(({ name }) => copies.has(`step ${name}`))) {
    facts.notice("a renamed copy was held before it was executed again");
  }
  const body = changed.bodies.get(generation);
  if (details.unasked.some(({ kind }) => kind === "wait")) {
    facts.notice("a run was held for a wait that its code does not ask for");
  }
  const hasPause = [...run.pauses.values()].some(({ kind, name, resolution }) =>
    kind !== "patch" && resolution === null && body?.asked.has(`${kind} ${name}`)
  );
  if (hasPause && reason === "diverged") facts.notice("a pause did not park a run beside what waited to begin");
  facts.notice(reason === "diverged" ? "a run diverged" : "a run ended too early");
  if (changed.holds > 0) facts.notice("a run was held again");
  if (changed.recordedBy.has(2) && own === 1) facts.notice("an old worker held what a new one had recorded");
  if (run.source !== null) facts.notice("a retry from the failure was held");
  if ([...run.waits.values()].some(({ accepted }) => accepted !== null)) facts.notice("a run with a signal was held");
  if (run.request.concurrencyKey !== null) facts.notice("a held run gave its key up");
  // One that ended early is tried once more by the same code after a minute, which a clock that jumps can make short.
  if (reason === "diverged") changed.tried.perhaps.add(code);
  changed.tried.certainly.add(code);
  changed.tried.ever.add(code);
  changed.heldUnder = generation;
  changed.wasHeld = true;
  changed.isOffered = false;
  changed.holds += 1;
  return true;
}

function isRenamed(changes: ChangePlan | null, name: string): boolean {
  return changes?.names.get(identityOf(name).replace(/#\d+$/, ""))?.fate === "rename";
}

/** Whether the function of a run has ended before it has asked for everything. */
export function isEndHeldBack({ changed, generation, returned }: RunFacts): boolean {
  const names = changed.claimed.get(generation)?.names ?? new Set();
  const asked = changed.bodies.get(generation)?.asked;
  return returned.has(generation) && asked !== undefined && [...names].some((key) => !asked.has(key));
}

/** Somebody resumes a held run. */
export function noteResumed(facts: Facts, run: RunFacts, continues: boolean): void {
  const { changed, request: { id } } = run;
  facts.expect(changed.heldUnder !== null, "I-D7", () => `${id} was resumed, and is not held`);
  changed.heldUnder = null;
  changed.isOffered = false;
  changed.tried.certainly.clear();
  changed.tried.perhaps.clear();
  changed.tried.ever.clear();
  changed.continues ||= continues;
  changed.hasContinued ||= continues;
  facts.notice(continues ? "a held run was resumed to go on with what is new" : "a held run was resumed");
}

/** A worker prepares pauses, or parks a run on them: none of them is there under another name. */
export function checkPauseNames(facts: Facts, run: RunFacts, { generation }: Lease, pauses: readonly NewPause[]): void {
  if (run.changed.hasContinued) return;
  const copies = run.changed.claimed.get(generation)?.copies;
  for (const { kind, name } of pauses) {
    const other = [...run.pauses.values()].find((known) =>
      known.kind === kind && known.name !== name && identityOf(known.name) === identityOf(name)
    );
    const isCopy = copies?.has(`${kind} ${other?.name}`) === true;
    if (isCopy) noteSecondName(facts, run, "a renamed copy of a pause began again");
    facts.expect(
      other === undefined || isCopy,
      "I-D2",
      () => `${run.request.id} pauses on ${kind} ${name}, which it has recorded as ${other!.name}`,
    );
  }
}

/** A run parks: nothing of it waits to begin. */
export function checkParked(facts: Facts, run: RunFacts, { generation }: Lease, sentAt: number): void {
  const left = run.changed.bodies.get(generation)?.stepsNotBegun(sentAt) ?? [];
  facts.expect(left.length === 0, "I-D3", () => `${run.request.id} parks, and ${left} waits to begin`);
}

/** The function of a job has returned, and the run ends: its code has asked for what was recorded, or has declared it. */
export function checkComplete(facts: Facts, run: RunFacts, { generation }: Lease, code: Code): void {
  const { changes } = facts;
  const { changed } = run;
  const body = changed.bodies.get(generation);
  const claimed = changed.claimed.get(generation);
  if (changes === null || body === undefined || claimed === undefined || changed.hasContinued) return;
  const own = codeFor(facts, run, code);
  const left = [...claimed.names].filter((key) =>
    !claimed.copies.has(key) && !body.asked.has(key) && !isRemoved(changes, key, own)
  );
  facts.expect(
    left.length === 0,
    "I-D2",
    () => `${run.request.id} ends under code ${own}, which has not asked for ${left.join(", ")}`,
  );
}

function isRemoved({ names }: ChangePlan, key: string, code: Code): boolean {
  const name = key.slice(key.indexOf(" ") + 1).replace(/#\d+$/, "");
  const change = names.get(name);
  if (change === undefined) return false;
  if (change.fate === "change kind") return code === LAST_CODE;
  return change.fate === "remove" && code !== 1 && (change.isDeclared || code === LAST_CODE);
}

/** The name under which a record answers, which its code may know as renamed. */
export function recordedName(
  { changes }: Facts,
  run: RunFacts,
  kind: "step" | "wait" | "sleep",
  name: string,
  code: Code,
): string {
  const old = identityOf(name);
  if (changes === null || code === 1 || old === name || isRecorded(run, kind, name)) return name;
  const change = changes.names.get(old.replace(/#\d+$/, ""));
  const isRenamed = change?.fate === "rename" && (change.isDeclared || code === LAST_CODE);
  return isRenamed && isRecorded(run, kind, old) ? old : name;
}

function isRecorded({ steps, pauses }: RunFacts, kind: string, name: string): boolean {
  if (kind === "step") return steps.has(name);
  return [...pauses.values()].some((pause) => pause.kind === kind && pause.name === name);
}

/** A step is begun: it is not recorded under another name. */
export function checkStepName(facts: Facts, run: RunFacts, generation: number, name: string): void {
  const other = [...run.steps.keys()].find((known) => known !== name && identityOf(known) === identityOf(name));
  if (other === undefined || run.changed.hasContinued) return;
  const isStale = run.generation > generation; // it does not know yet what others have recorded since
  const isCopy = run.changed.claimed.get(generation)?.copies.has(`step ${other}`) === true;
  if (isCopy) noteSecondName(facts, run, "a renamed copy of a step was executed again");
  facts.expect(
    isStale || isCopy,
    "I-D2",
    () => `${run.request.id} begins ${name}, which it has recorded as ${other}: ${run.steps.get(other)!.result}`,
  );
}

function noteSecondName(facts: Facts, { changed }: RunFacts, situation: Situation): void {
  changed.hasTwoNames = true;
  facts.notice(situation);
}

/** Whether a code asks for things by other names than those that a run has recorded. */
export function describe(facts: Facts, { changed: { recordedBy }, request: { payload } }: RunFacts): string {
  const { program } = JSON.parse(payload!) as { program: Program };
  return [...recordedBy].map((code) =>
    `code ${code} (${JSON.stringify(facts.changes === null ? program : changeProgram(program, facts.changes, code))})`
  ).join(" and ");
}
