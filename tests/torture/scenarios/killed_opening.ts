import assert from "node:assert/strict";
import { SqliteStore } from "../../../mod.ts";
import { Child } from "../../processes/child.ts";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { assertNone } from "./assert_none.ts";
import { checkIntegrity } from "./audit.ts";
import { Place } from "./place.ts";

const VICTIMS = 2; // in each round, at once
const LONGEST_MS = 60;

/** Processes are killed while they open and migrate a new file: whoever comes next finds a file that can be used. */
export const killedOpening: Scenario = {
  name: "a kill while a new file is opened",
  async run({ isBrief }): Promise<ScenarioResult> {
    const rounds = isBrief ? 10 : 200;
    const kills = { "too soon": 0, "on the way": 0, "too late": 0 };
    await using survivor = new Child("opening.ts");
    await survivor.hear("ready");

    for (let round = 0; round < rounds; round++) {
      await using place = await Place.make();
      const victims = await Promise.all(Array.from({ length: VICTIMS }, () => kill(place)));
      const isBegun = await exists(place.database);
      for (const { runId } of victims) {
        kills[runId !== null ? "too late" : isBegun ? "on the way" : "too soon"]++;
      }

      await survivor.tell(place.database);
      const { runId, error } = await survivor.hear("triggered");

      assert.equal(error, null);
      await using store = await SqliteStore.open(place.database);
      const runIds = (await store.getRuns({})).runs.map(({ id }) => id);
      const triggered = [runId, ...victims.map((victim) => victim.runId)].filter((id) => id !== null) as string[];
      assertNone(triggered.filter((id) => !runIds.includes(id)), "Runs of which processes were told are gone");
      assert.ok(runIds.length <= VICTIMS + 1, `${VICTIMS + 1} processes have triggered ${runIds.length} runs`);
      assert.equal(checkIntegrity(place.database), "ok");
    }
    assert.ok(kills["on the way"] >= rounds / 10, `Too few were killed on the way: ${JSON.stringify(kills)}`);
    return {
      outcome: "held",
      told: `${rounds} new files: ${kills["on the way"]} processes were killed after one had begun with the file, ` +
        `${kills["too soon"]} before, ${
          kills["too late"]
        } after they had triggered a run; the next one opened all files`,
    };
  },
};

/** Lets a process open the file and kills it. Answers the run that it has told of until then. */
async function kill(place: Place): Promise<{ runId: string | null }> {
  await using victim = new Child("opening.ts");
  await victim.hear("ready");
  await victim.tell(place.database);
  await new Promise((resolve) => setTimeout(resolve, Math.random() * LONGEST_MS));
  await victim.end("SIGKILL");
  const message = await victim.hear("triggered").catch(() => null);
  assert.equal(message?.error ?? null, null, "A process could not open the file");
  return { runId: message === null ? null : message.runId as string };
}

async function exists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}
