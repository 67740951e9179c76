import { cp } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import type { Holdfast } from "./slices.ts";

/** What is left out of a copy of the project: a text in a file, and what takes its place. */
const LEFT_OUT: readonly (readonly [file: string, text: string, instead: string])[] = [
  // The calls to the store are neither counted nor measured.
  [
    "src/engine/assemble_engine.ts",
    "measuredStore(debugged, recorder.metrics, host, onAnswer)",
    "{ store: debugged, condition: { isMigrated: true, isBroken: false, failedWrite: null } }",
  ],
  // Events are not counted.
  ["src/engine/assemble_engine.ts", "hub.observe((jobName, happening) => recorder.observe(jobName, happening));", ""],
  // So nothing is written to the store, either.
  ...["noteTrigger(jobName: string, disposition: Disposition)", "noteStart(jobName: string, delayMs: number)"]
    .concat(['noteFailed(jobName: string, histogram: "duration" | "stepDuration", durationMs: number)'])
    .concat(["noteExecution(jobName: string, outcome: ExecutionOutcome)"])
    .map((method) => ["src/statistics/recorder.ts", `${method}: void {`, `${method}: void { return;`] as const),
];

/**
 * Copies the project without its statistics and metrics, and loads it.
 *
 * @param folder Where the copy is made; it must not exist.
 * @throws {Error} What is to be left out is no longer there.
 */
export async function loadUnobserved(folder: string): Promise<Holdfast> {
  const root = `${import.meta.dirname}/..`;
  await cp(`${root}/mod.ts`, `${folder}/mod.ts`);
  await cp(`${root}/src`, `${folder}/src`, { recursive: true });
  for (const [file, text, instead] of LEFT_OUT) {
    const code = await Deno.readTextFile(`${folder}/${file}`);
    if (code.split(text).length !== 2) throw new Error(`${file} does not have once: ${text}`);
    await Deno.writeTextFile(`${folder}/${file}`, code.replace(text, () => instead));
  }
  return await import(pathToFileURL(`${folder}/mod.ts`).href);
}
