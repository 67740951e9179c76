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
  return partsOf(queue)[0]!;
}

/** The version of the runs in a queue. */
export function versionOf(queue: string): number {
  return Number(partsOf(queue)[1] ?? 1);
}

function partsOf(queue: string): string[] {
  return queue.split("\t", 2);
}
