/**
 * The queue in which a run waits: the runs of a job and version, or, with a `print`, the held runs among them that are
 * offered to the code with this print. The name of a job has no control characters, so the parts cannot be confused.
 */
export function queueName(jobName: string, version: number, print?: string): string {
  if (print !== undefined) return `${jobName}\t${version}\t${print}`;
  return version === 1 ? jobName : `${jobName}\t${version}`;
}

/** The name of the job of a queue. */
export function jobNameOf(queue: string): string {
  const end = queue.indexOf("\t");
  return end === -1 ? queue : queue.slice(0, end);
}

/** The version of the runs in a queue. */
export function versionOf(queue: string): number {
  return queue.includes("\t") ? Number(queue.split("\t", 2)[1]) : 1;
}

/** The queue of the runs of another one, that of a version of a job, which are claimed alone. No print is empty. */
export function aloneQueue(queue: string): string {
  return queueName(jobNameOf(queue), versionOf(queue), "");
}

/** Whether the runs in a queue are claimed alone. */
export function isAloneQueue(queue: string): boolean {
  return queue.endsWith("\t");
}

/** Whether a queue is not that of a version of a job: its runs are claimed alone, or offered to the code with one print. */
function isSpecialQueue(queue: string): boolean {
  const end = queue.indexOf("\t");
  return end !== -1 && queue.includes("\t", end + 1);
}

/** Whether the runs in a queue are held ones that are offered to the code with one print. */
export function isOfPrint(queue: string): boolean {
  return isSpecialQueue(queue) && !isAloneQueue(queue);
}
