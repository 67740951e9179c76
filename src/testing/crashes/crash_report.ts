import { AssertionError } from "node:assert";
import { isDeepStrictEqual } from "node:util";
import type { CrashResult } from "./crash_execution.ts";
import type { PlannedCrash } from "./crash_plan.ts";

/** Something that a crash has changed. */
export interface CrashFinding {
  /**
   * What is different: how the run ended (`ended`), its output or error (`outcome`), the world (`effects`), or the recorded
   * steps (`steps`). `stuck`: nothing is ever due. `held`: the job did not ask for what the run has recorded.
   * `worker`: a worker has reported an error.
   */
  kind: "ended" | "outcome" | "effects" | "steps" | "stuck" | "held" | "worker";
  /** What was found, in words. */
  message: string;
  /** What the execution without a crash has led to. */
  expected: unknown;
  /** What was found. */
  actual: unknown;
  /** Where a crash leads to this: `record "charge" dies before`. */
  places: string[];
  /** What may help. */
  hint: string;
  /** What has happened in the first of these executions. */
  trace: string;
}

/** What the crashes have shown. */
export interface CrashReport {
  /** What crashes have changed; those with the same result are one finding. */
  readonly findings: readonly CrashFinding[];
  /** How many checkpoints the execution without crashes has. */
  readonly checkpoints: number;
  /** How many executions there were. */
  readonly executions: number;
  /** Crashes that were left out, since there would have been more than `most` executions. */
  readonly leftOut: readonly string[];
  /** Crashes whose checkpoint did not come: the job does something else each time. */
  readonly unreached: readonly string[];
  /** The findings as text. */
  toString(): string;
  /**
   * Does nothing if no crash has changed anything.
   *
   * @throws {AssertionError} Some crash has.
   */
  assertSame(): void;
}

/** Collects what crashes have changed. */
export class CrashFindings implements CrashReport {
  readonly findings: CrashFinding[] = [];
  readonly checkpoints: number;
  readonly leftOut: readonly string[];
  readonly unreached: string[] = [];
  executions = 1;
  readonly #baseline: CrashResult;
  readonly #ordered: boolean;

  constructor(baseline: CrashResult, { leftOut, ordered }: { leftOut: readonly PlannedCrash[]; ordered: boolean }) {
    this.#baseline = baseline;
    this.#ordered = ordered;
    this.checkpoints = baseline.checkpoints.length;
    this.leftOut = leftOut.map(placeOf);
  }

  /** Compares an execution with the one without crashes. */
  add(crash: PlannedCrash, result: CrashResult): void {
    this.executions += 1;
    if (!result.hasCrashed) this.unreached.push(placeOf(crash));
    const found = this.#compare(result);
    if (found === null) return;
    const place = placeOf(crash);
    const same = this.findings.find(({ kind, actual }) =>
      kind === found.kind && isDeepStrictEqual(actual, found.actual)
    );
    if (same !== undefined) return void same.places.push(place);
    this.findings.push({ ...found, places: [place], hint: hintFor(found.kind, crash), trace: result.trace });
  }

  assertSame(): void {
    if (this.findings.length === 0) return;
    const [{ actual, expected }] = this.findings as [CrashFinding];
    throw new AssertionError({ message: this.toString(), actual, expected, operator: "assertSame" });
  }

  toString(): string {
    const found = this.findings.map(({ kind, message, places, hint, trace }) =>
      `${kind}: ${message}\nat ${shorten(places)}\n${trace}\n${hint}`
    );
    const { checkpoints, executions, leftOut, unreached } = this;
    const not = unreached.length === 0 ? "" : `; ${unreached.length} did not come: ${shorten(unreached)}`;
    const left = leftOut.length === 0 ? "" : `; ${leftOut.length} crashes were left out (most): ${shorten(leftOut)}`;
    const what = found.length === 0 ? "no crash changes anything" : `crashes change ${found.length} thing(s)`;
    return [`${what}: ${checkpoints} checkpoints, ${executions} executions${left}${not}`, ...found].join("\n\n");
  }

  #compare(result: CrashResult): Omit<CrashFinding, "places" | "hint" | "trace"> | null {
    const expected = this.#baseline;
    const differs = (
      kind: CrashFinding["kind"],
      expected: unknown,
      actual: unknown,
      message = differenceOf(expected, actual),
    ) => ({ kind, message, expected, actual });
    if (result.ended === "stuck" || result.ended === "held") {
      return differs(result.ended, expected.ended, result.ended, result.reason ?? "");
    }
    if (result.ended !== expected.ended) {
      return differs(
        "ended",
        expected.ended,
        result.ended,
        `expected ${expected.ended}, found ${result.ended}: ${result.outcome}`,
      );
    }
    const effects = [this.#inOrder(expected.effects), this.#inOrder(result.effects)] as const;
    if (!isDeepStrictEqual(...effects)) return differs("effects", ...effects);
    if (!isDeepStrictEqual(expected.outcome, result.outcome)) {
      return differs("outcome", expected.outcome, result.outcome);
    }
    const steps = [sorted(expected.steps), sorted(result.steps)] as const;
    if (!isDeepStrictEqual(...steps)) return differs("steps", ...steps);
    if (result.errors.length > 0) return differs("worker", [], result.errors, result.errors[0]);
    return null;
  }

  /** What the order does not count for, in a fixed order. */
  #inOrder(effects: unknown): unknown {
    return !this.#ordered && Array.isArray(effects) ? sorted(effects) : effects;
  }
}

const MAX_PLACES = 6;
const MAX_SHOWN = 200;

function placeOf({ name, no, mode }: PlannedCrash): string {
  return `${name}${no === 1 ? "" : ` (the ${no}. time)`} ${mode}`;
}

function sorted(items: readonly unknown[]): unknown[] {
  return items.toSorted((one, other) => textOf(one) < textOf(other) ? -1 : 1);
}

function differenceOf(expected: unknown, actual: unknown): string {
  if (Array.isArray(expected) && Array.isArray(actual) && expected.length !== actual.length) {
    return `expected ${expected.length}, found ${actual.length}`;
  }
  return `expected ${textOf(expected)}, found ${textOf(actual)}`;
}

function textOf(value: unknown): string {
  const text = JSON.stringify(value) ?? "undefined";
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
}

function shorten(places: readonly string[]): string {
  const more = places.length - MAX_PLACES;
  return places.slice(0, MAX_PLACES).join("; ") + (more > 0 ? `; and ${more} more` : "");
}

function hintFor(kind: CrashFinding["kind"], { stepName, name }: PlannedCrash): string {
  if (kind === "held" || kind === "stuck") {
    return "A replay has to ask for the same steps: let nothing but their results decide";
  }
  if (kind === "effects" && stepName !== null) {
    return `Give step "${stepName}" something to tell repetitions by: hand its idempotencyKey to the outside system`;
  }
  if (kind === "effects" || name.endsWith("outside of steps")) {
    return "Do what changes the outside world in steps: the rest is executed again";
  }
  return "Draw ids, read clocks and change variables in steps only, and go on with what the steps return";
}
