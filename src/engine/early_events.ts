import type { RunEvent } from "../event.ts";
import type { Lease } from "../lease.ts";

/** An event of this process, and the lease under which it happened. */
export interface Heard {
  event: RunEvent;
  lease: Lease | null;
}

/** Keeps an event until a run has been read. Of progress that nothing else comes between: the first and the latest. */
export function keepEarly<H extends Heard>(early: H[], heard: H): void {
  const isLatestOfMany = [...early.slice(-2), heard].filter(({ event }) => event.type === "run:progress").length === 3;
  if (isLatestOfMany) early[early.length - 1] = heard;
  else early.push(heard);
}
