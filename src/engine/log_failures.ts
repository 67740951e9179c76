import { toFailure } from "../failure/to_failure.ts";
import { describeFailedRun, failureReport } from "../failure.ts";
import type { Hub } from "../events/hub.ts";
import type { Logger } from "../logger.ts";

/** Logs the runs that fail or are held in this process, and the errors of the engine itself. */
export function logFailures(hub: Hub, logger: Logger): void {
  hub.on("run:fail", ({ runId, jobName, failedStepName: stepName, error, ...event }) => {
    const why = "thrown" in event ? failureReport(toFailure(event.thrown)) : error;
    logger.error(`${describeFailedRun({ runId, jobName, stepName })}: ${why}`);
  });
  hub.on("run:hold", ({ runId, jobName, message }) => {
    logger.warn(`Run "${runId}" of job "${jobName}" does not go on. ${message}`);
  });
  hub.on("worker:error", ({ error }) => {
    logger.error(`The engine continues after an error: ${failureReport(toFailure(error))}`);
  });
}
