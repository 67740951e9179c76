import { setTimeout } from "node:timers/promises";
import { type DemoService, services } from "./demo_service.ts";

/** A film whose clips without a licence are held by a deploy that has a new step. */
export async function heldFilm({ engine }: DemoService, input: { clips: number; unlicensed: number }): Promise<string> {
  const { id } = await engine.jobs.makeFilm.trigger(input);
  await engine.start();
  const open = async () => (await engine.getOpenWaits({ jobName: "make-clip" })).waits;
  while ((await open()).length < input.unlicensed) await setTimeout(25);
  services.extractsFrames = true;
  for (const wait of await open()) await engine.signal(wait.id, { signalId: wait.id, payload: null });
  while ((await engine.getRuns({ held: true, limit: 0 })).total < input.unlicensed) await setTimeout(25);
  return id;
}
