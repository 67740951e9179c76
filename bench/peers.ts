import type { OpenEngine } from "./engine.ts";

/** Opens a peer. Nothing of it is loaded before. */
export function openPeer(name: "durably" | "openworkflow"): OpenEngine {
  return async (options) => {
    if (name === "durably") return await (await import("./engines/durably.ts")).openDurably(options);
    return await (await import("./engines/openworkflow.ts")).openOpenworkflow(options);
  };
}
