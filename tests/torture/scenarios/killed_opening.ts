import assert from "node:assert/strict";
import { SqliteStore } from "../../../mod.ts";
import { Child, type Program } from "../../processes/child.ts";
import { allEnded } from "../all_ended.ts";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { assertNone } from "./assert_none.ts";
import { checkIntegrity } from "./audit.ts";
import { Place } from "./place.ts";
import { getRuns } from "../../../src/store/reads.ts";

const OPENING: Program = { file: "opening.ts", isDetached: true };
const VICTIMS = 2; // in each round, at once
const MEASURED = 3; // openings that nobody disturbs

/** Processes are killed while they open and migrate a new file: whoever comes next finds a file that can be used. */
export const killedOpening: Scenario = {
  name: "a kill while a new file is opened",
  async run({ isBrief, patience }): Promise<ScenarioResult> {
    const rounds = isBrief ? 10 : 200;
    const kills = { "too soon": 0, "on the way": 0, "too late": 0 };
    await using survivor = new Child(OPENING);
    await survivor.hear("ready");
    const openingMs = await measure();

    for (let round = 0; round < rounds; round++) {
      patience.check();
      await using place = await Place.make();
      const victims = await allEnded(Array.from({ length: VICTIMS }, () => kill(place, openingMs)));
      const isBegun = await exists(place.database);
      for (const { runId } of victims) {
        kills[runId !== null ? "too late" : isBegun ? "on the way" : "too soon"]++;
      }

      await survivor.tell(place.database);
      const { runId, error } = await survivor.hear("triggered");

      assert.equal(error, null);
      await using store = await SqliteStore.open(place.database);
      const runIds = (await getRuns(store, {})).runs.map(({ id }) => id);
      const triggered = [runId, ...victims.map((victim) => victim.runId)].filter((id) => id !== null) as string[];
      assertNone(triggered.filter((id) => !runIds.includes(id)), "Runs of which processes were told are gone");
      assert.ok(runIds.length <= VICTIMS + 1, `${VICTIMS + 1} processes have triggered ${runIds.length} runs`);
      assert.equal(checkIntegrity(place.database), "ok");
    }
    assert.ok(kills["on the way"] >= rounds / 10, `Too few were killed on the way: ${JSON.stringify(kills)}`);
    return {
      outcome: "held",
      told: `${rounds} new files, opened in ${Math.round(openingMs)} ms if nobody is killed: ` +
        `${kills["on the way"]} processes were killed after one had begun with the file, ` +
        `${kills["too soon"]} before, ${kills["too late"]} after they had triggered a run; ` +
        "the next one opened all files",
    };
  },
};

/** How long processes take that open a new file together and are left alone, in milliseconds: the longest of a few. */
async function measure(): Promise<number> {
  let longestMs = 0;
  for (let opening = 0; opening < MEASURED; opening++) {
    await using place = await Place.make();
    await using children = new AsyncDisposableStack();
    const openers = Array.from({ length: VICTIMS }, () => children.use(new Child(OPENING)));
    await Promise.all(openers.map((opener) => opener.hear("ready")));
    const since = performance.now();
    await Promise.all(openers.map((opener) => opener.tell(place.database)));
    await Promise.all(openers.map((opener) => opener.hear("triggered")));
    longestMs = Math.max(longestMs, performance.now() - since);
  }
  return longestMs;
}

/** Lets a process open the file and kills it meanwhile. Answers the run that it has told of until then. */
async function kill(place: Place, openingMs: number): Promise<{ runId: string | null }> {
  await using victim = new Child(OPENING);
  await victim.hear("ready");
  await victim.tell(place.database);
  await new Promise((resolve) => setTimeout(resolve, Math.random() * openingMs));
  await victim.end("SIGKILL");
  const message = await victim.hear("triggered").catch(() => null);
  assert.equal(message?.error ?? null, null, "A process could not open the file");
  return { runId: message === null ? null : message.runId as string };
}

async function exists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}
