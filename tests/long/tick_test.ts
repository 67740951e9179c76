import assert from "node:assert/strict";
import { compareTicks } from "../engine/tick_histories.ts";
import { Child } from "../processes/child.ts";
import { until } from "../processes/deadline.ts";
import { Ledger } from "../processes/ledger.ts";

const TICKING_MS = 10_000;

Deno.test("1,000 histories end the same, whether their engine is called when something is due, or often", async () => {
  await compareTicks(1_000);
});

Deno.test("two processes that tick at once do each slot and each run once", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const ledger = new Ledger(`${folder}/ledger`);
    const args = [`${folder}/jobs.db`, `${folder}/ledger`, String(TICKING_MS)];
    await using one = new Child("ticking.ts", ...args);
    await using other = new Child("ticking.ts", ...args);
    await Promise.all([one.hear("ready"), other.hear("ready")]);

    await Promise.all([one.tell("go"), other.tell("go")]);
    const said = await Promise.all([one.hear("ticked"), other.hear("ticked")]);

    const of = (kind: string) => ledger.read().filter(([word]) => word === kind).map(([, what]) => what!);
    const [slots, runs] = [of("slot"), of("run")];
    assert.deepEqual(slots.length, new Set(slots).size, "a slot was done twice");
    assert.deepEqual(runs.length, new Set(runs).size, "a run was executed twice");
    const times = slots.map((slot) => Date.parse(slot)).sort((left, right) => left - right);
    assert.ok(times.length >= TICKING_MS / 1_000 - 2, `${times.length} slots`);
    assert.deepEqual(times, times.map((_, at) => times[0]! + at * 1_000), "a slot was left out");
    assert.ok(said.every(({ executed }) => Number(executed) > 0), JSON.stringify(said));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("examples/tick_by_cron.ts executes what is due once a minute, and a run of a request at once", async () => {
  const folder = await Deno.makeTempDir();
  const program = new URL("../../examples/tick_by_cron.ts", import.meta.url).href;
  const process = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", "--unstable-cron", program, `${folder}/jobs.db`],
    env: { NO_COLOR: "1" },
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  let output = "";
  const reading = (async () => {
    for await (const text of process.stdout.pipeThrough(new TextDecoderStream())) output += text;
  })();
  try {
    await until(() => /^http:\S+$/m.test(output), "the example was to print its address");

    const response = await fetch(/^http:\S+$/m.exec(output)![0], { method: "POST" });

    assert.match((await response.json()).runId, /^[\da-f-]{36}$/);
    assert.match(output, /^Welcome, Ada$/m);
    const hasTicked = () => /^Mailed the digest of \d{4}-/m.test(output);
    // The next minute begins within one, and until() waits for no longer.
    await until(hasTicked, "the cron was to execute the slot").catch(() => until(hasTicked, "the cron was to tick"));
    await until(() => /The cron executed \d+ runs/.test(output), "the cron was to end its tick");
    assert.match(output, /^How is it going, Ada\?$/m);
  } finally {
    process.kill("SIGKILL");
    await Promise.all([process.status, reading]);
    await Deno.remove(folder, { recursive: true });
  }
});
