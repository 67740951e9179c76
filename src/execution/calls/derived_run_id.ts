import { createHash } from "node:crypto";

/**
 * The id of the run that a step triggers: the same whenever the step is executed again.
 *
 * @param originId The first run of the chain of retries. The id keeps its time, so that it is a UUIDv7, too.
 * @param stepKey The step's idempotency key.
 */
export function derivedRunId(originId: string, stepKey: string): string {
  const hash = createHash("sha256").update(`holdfast trigger ${stepKey}`).digest("hex");
  const variant = (8 + parseInt(hash[3]!, 16) % 4).toString(16); // RFC 9562, section 4.1
  return `${originId.slice(0, 13)}-7${hash.slice(0, 3)}-${variant}${hash.slice(4, 7)}-${hash.slice(7, 19)}`;
}
