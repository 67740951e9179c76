import { type Failure, failureReport } from "../../../failure.ts";
import { HoldfastError, StoreError } from "../../../error.ts";
import type { ClientRun } from "../../../client_run.ts";
import type { ClientStep } from "../../../step.ts";
import type { RunFailures } from "../../../store/timeline_records.ts";
import type { Wait } from "../../../wait.ts";
import type { Command } from "../../command.ts";
import { findRunId } from "../../find_run.ts";
import { countOf, describeBoth, describeLabels, describeSpan, statusCell } from "../../output/describe.ts";
import { toJsonLine } from "../../../values/escape_text.ts";
import type { Output } from "../../output/output.ts";
import { cutText } from "../../output/text_width.ts";
import { askApi } from "../../service/api.ts";
import type { Service } from "../../service/service.ts";

/** What is shown of a run. */
interface Shown {
  run: ClientRun;
  steps: ClientStep[];
  waits: Wait[];
  /** What it failed of, with stacks; `null`: the service does not show it. */
  failure: RunFailures | null;
}

const MAX_VALUE_LENGTH = 2_000;

/** Shows a run. */
export const show: Command = {
  name: "show",
  usage: "RUN",
  about: "show a run with its steps, its waits and its error",
  arity: [1, 1],
  options: {},
  async run({ args, service, output }) {
    const runId = await findRunId(service, args.positionals[0]!);
    const query = { runId };
    const shown: Shown = {
      run: await askApi<ClientRun>(service, "GET", "/run", { query }),
      steps: await askApi<ClientStep[]>(service, "GET", "/steps", { query }),
      waits: await askApi<Wait[]>(service, "GET", "/waits", { query }),
      failure: await readFailure(service, runId),
    };
    output.object(shown, (value) => describeRun(value, output));
    return 0;
  },
};

async function readFailure(service: Service, runId: string): Promise<RunFailures | null> {
  try {
    return await askApi<RunFailures>(service, "GET", "/failure", { query: { runId } });
  } catch (error) {
    if (error instanceof HoldfastError && !(error instanceof StoreError) && error.code === "forbidden") return null;
    throw error;
  }
}

function describeRun({ run, steps, waits, failure }: Shown, output: Output): void {
  const now = Date.now();
  const { text, color } = statusCell(run.status);
  output.facts([
    ["run", run.id],
    ["job", run.jobName],
    ["status", text, color],
    ["labels", describeLabels(run.labels) || null],
    ["triggered", describeBoth(run.createdAt, now)],
    ["starts", describeBoth(run.startAt, now)],
    ["started", describeBoth(run.startedAt, now)],
    ["ended", describeBoth(run.completedAt, now)],
    ["took", describeSpan(run.startedAt, run.completedAt, now) || null],
    ["held", run.held?.message ?? null, "yellow"],
    ["parent", run.parentRunId ?? null],
    ["schedule", run.scheduleName ?? null],
    ["retry of", run.retriggerOf ?? null],
    ["retried as", run.retriggeredAs ?? null],
    ["progress", run.progress === undefined ? null : toJsonLine(run.progress)],
    ["input", showValue(run.input)],
    ["output", run.status === "completed" ? showValue(run.output) : null],
    ["failed step", run.failedStepName ?? null],
    ["error", run.error ?? null, "red"],
  ]);
  if (steps.length > 0) describeSteps(steps, now, output);
  if (waits.length > 0) describeWaits(waits, now, output);
  const shown = failure?.run ?? null;
  if (shown !== null) describeFailure(shown, output);
}

function showValue(value: ClientRun["input"]): string {
  return cutText(toJsonLine(value), MAX_VALUE_LENGTH);
}

function describeSteps(steps: readonly ClientStep[], now: number, output: Output): void {
  output.line("");
  output.line(countOf(steps.length, "step"), "bold");
  const columns = [
    { title: "STATUS" },
    { title: "STEP", isCut: true },
    { title: "ATTEMPTS", isRight: true },
    { title: "TOOK", isRight: true },
    { title: "ERROR", isCut: true },
  ];
  output.table(
    columns,
    steps.map((step) => [
      statusCell(step.status),
      step.name,
      `${step.attempts}`,
      describeSpan(step.startedAt, step.completedAt, now),
      step.error ?? "",
    ]),
  );
}

function describeWaits(waits: readonly Wait[], now: number, output: Output): void {
  output.line("");
  output.line(countOf(waits.length, "wait"), "bold");
  const columns = [{ title: "STATUS" }, { title: "WAIT", isCut: true }, { title: "ID" }, { title: "DEADLINE" }];
  output.table(
    columns,
    waits.map((
      wait,
    ) => [wait.outcome ?? wait.status, wait.name, wait.id, describeBoth(wait.deadlineAt, now) ?? "none"]),
  );
}

function describeFailure(failure: Failure, output: Output): void {
  output.line("");
  for (const line of failureReport(failure).split("\n")) output.line(line);
}
