import { showName } from "../../execution/replay/divergence_message.ts";
import type { Job } from "../../model/job.ts";
import type { Changes } from "../../model/job/job_changes.ts";
import { isTerminal } from "../../model/run.ts";
import { showChanges } from "../suggest_changes.ts";
import { isRefused, REPLAY_OUTCOMES, type ReplayOutcome, type ReplayReport } from "../replay_report.ts";

/** Describes the reports of one job: how many runs go on, and why the others do not. */
export function summarize(job: Job, reports: readonly ReplayReport[]): string {
  const counts = REPLAY_OUTCOMES.flatMap((outcome) => {
    const { length } = reports.filter((report) => report.outcome === outcome);
    return length === 0 || isRefused({ outcome }) ? [] : [countOf(length, WORDS[outcome])];
  });
  const start = [job.name, countOf(reports.length, ["run", "runs"]), ...counts].join("  ");
  const groups = groupOf(reports.filter(isRefused)).map(({ outcome, reason, reports }) => ({
    count: `${countOf(reports.length, WORDS[outcome])}:`,
    lines: [reason, ...suggestionOf(reports), `for example run ${reports[0]!.runId}`],
  }));
  const [first, ...others] = groups.map(({ count, lines }, index) => {
    const head = index === 0 ? `${start}  ${count}` : `${" ".repeat(start.length)}  ${count}`;
    return lines.map((line, at) => `${at === 0 ? head : " ".repeat(head.length)}  ${line}`).join("\n");
  });
  const superfluous = superfluousChanges(job, reports);
  return [
    first ?? start,
    ...others,
    ...(superfluous === null ? [] : [`  no open run needs this any more:  changes: ${showChanges(superfluous)}`]),
  ].join("\n");
}

/** The reason why a run does not go on, short enough that runs at different places have the same one. */
function reasonOf({ code, isNew, unasked, message }: ReplayReport): string {
  const [first] = unasked;
  const text = message.replace(/^Held: /, "");
  if (first === undefined || code === null || code === "input_refused") return text;
  if (code === "ended_early") {
    const [ending] = text.split(" before it asked for recorded ");
    return `${ending} before it asked for ${showName(first)}`;
  }
  if (isNew === null) return `the job waits and has not asked for ${showName(first)}`;
  const old = unasked.find(({ kind }) => kind === isNew.kind) ?? first;
  return `${showName(isNew)} is new while ${showName(old)} is unasked`;
}

/** One and many of each outcome. */
const WORDS: Record<ReplayOutcome, readonly [one: string, many: string]> = {
  "goes on": ["goes on", "go on"],
  "ends the same": ["ends the same", "end the same"],
  "ends otherwise": ["ends otherwise", "end otherwise"],
  "held": ["would be held", "would be held"],
  "fails": ["would fail", "would fail"],
  "stranded": ["would wait", "would wait"],
};

function countOf(count: number, [one, many]: readonly [string, string]): string {
  return `${count} ${count === 1 ? one : many}`;
}

interface Group {
  outcome: ReplayOutcome;
  reason: string;
  reports: ReplayReport[];
}

/** Reports by outcome and reason, the largest group first. */
function groupOf(reports: readonly ReplayReport[]): Group[] {
  const groups = new Map<string, Group>();
  for (const report of reports) {
    const { outcome } = report;
    const reason = reasonOf(report);
    const key = `${outcome} ${reason}`;
    const group = groups.get(key) ?? { outcome, reason, reports: [] };
    group.reports.push(report);
    groups.set(key, group);
  }
  return [...groups.values()].sort((one, other) => other.reports.length - one.reports.length);
}

function suggestionOf(reports: readonly ReplayReport[]): string[] {
  const suggestion = reports.find(({ suggestion }) => suggestion !== null)?.suggestion;
  return suggestion === undefined || suggestion === null ? [] : [`changes: ${showChanges(suggestion)}`];
}

/** What the job declares and no open run needs; `null`: nothing, or it is not known since an open run does not go on. */
function superfluousChanges({ changes }: Job, reports: readonly ReplayReport[]): Changes | null {
  const open = reports.filter(({ status }) => !isTerminal(status));
  if (open.some(isRefused)) return null;
  const needed = open.map(({ neededChanges }) => neededChanges);
  const renamed = [...changes.renamed]
    .filter(([old]) => !needed.some(({ renamed }) => Object.hasOwn(renamed, old)));
  const removed = [...changes.removed].filter((name) => !needed.some(({ removed }) => removed.includes(name)));
  const added = [...changes.added].filter((name) => !needed.some(({ added }) => added.includes(name)));
  if (renamed.length + removed.length + added.length === 0) return null;
  return { renamed: Object.fromEntries(renamed), removed, added };
}
