import type { OpenEngine } from "./engine.ts";
import { loadOther } from "./load_other.ts";

/** The modules of the peers. */
interface Peers {
  /** `bench/engines/durably.ts`. */
  openDurably: OpenEngine;
  /** `bench/engines/openworkflow.ts`. */
  openOpenworkflow: OpenEngine;
}

/** Opens a peer. Nothing of it is loaded before. */
export function openPeer(name: "durably" | "openworkflow"): OpenEngine {
  return async (options) => {
    const peer = await loadOther<Peers>(`engines/${name}.ts`);
    return await (name === "durably" ? peer.openDurably(options) : peer.openOpenworkflow(options));
  };
}
