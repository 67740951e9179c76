import type { SignalReceipt, Wait } from "./wait.ts";

/** A wait as it is shown over HTTP: who signalled is left out while nobody said so. */
export type ClientWait = Omit<Wait, "signalledBy"> & { signalledBy?: string };

/** The answer to a signal over HTTP. */
export type ClientSignalReceipt = Omit<SignalReceipt, "wait"> & { wait: ClientWait };

/** Shows a wait over HTTP. */
export function toClientWait<W extends Pick<Wait, "signalledBy">>(
  { signalledBy, ...wait }: W,
): Omit<W, "signalledBy"> & Pick<ClientWait, "signalledBy"> {
  return signalledBy === null ? wait : { ...wait, signalledBy };
}
