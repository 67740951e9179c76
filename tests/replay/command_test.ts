import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { defineJob } from "../../src/model/job/define_job.ts";
import { runCommand } from "../../src/replay/command/command.ts";
import type { ReplayReport } from "../../src/replay/replay_report.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { anything } from "../support/stores/for_each_store.ts";
import { signal } from "../support/pauses.ts";
import { createEngine } from "../support/quiet_engine.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** The module of a deployment: `charge` is the name of its first step, `options` is text of its definition. */
function moduleWith({ charge = "charge", options = "", before = "", exported = "export const checkout" } = {}): string {
  return `
    import { defineJob } from "@holdfast/jobs";
    import { z } from "zod";
    ${exported} = defineJob({
      name: "checkout",
      input: z.object({ order: z.string() }),
      ${options}
      async run(step) {
        ${before}
        await step.run("${charge}", () => { throw new Error("called"); });
        const ok = await step.wait("ok?");
        await step.run("ship", () => { throw new Error("called"); });
        return ok.outcome;
      },
    });
    console.log("the module writes");
  `;
}

interface Replayed {
  code: number;
  out: string;
  error: string;
}

/** A folder with a backup: three runs wait, two have completed, and one of another job is open. */
async function withBackup(
  test: (folder: string, replay: (module: string, ...args: string[]) => Promise<Replayed>) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await makeBackup(folder);
    await test(folder, async (module, ...args) => {
      const jobs = join(folder, "jobs.ts");
      await Deno.writeTextFile(jobs, module);
      return await run(["--jobs", jobs, ...args]);
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function makeBackup(folder: string): Promise<void> {
  const checkout = defineJob({
    name: "checkout",
    input: anything,
    async run(step) {
      await step.run("charge", () => "ch_1");
      const ok = await step.wait("ok?");
      await step.run("ship", () => "shipped");
      return ok.outcome;
    },
  });
  const other = defineJob({ name: "other", input: anything, run: (step) => step.wait("ever") });
  await using store = await SqliteStore.open(join(folder, "jobs.db"));
  await using engine = createEngine({ store, jobs: { checkout, other } });
  const runs = await engine.jobs.checkout.batchTrigger(
    ["1", "2", "3", "4", "5"].map((order) => ({ input: { order } })),
  );
  await engine.jobs.other.trigger({});
  await engine.runUntilIdle();
  for (const { id } of runs.slice(3)) await signal(engine, id, "ok?");
  await engine.runUntilIdle();
  await Deno.mkdir(join(folder, "histories"));
  for (const { id } of [runs[0]!, runs[3]!]) {
    const history = await engine.exportHistory(id);
    await Deno.writeTextFile(join(folder, "histories", `${history.status}.json`), JSON.stringify(history));
  }
  await store.backup(join(folder, "backup.db"));
}

/** Runs the command as a user does: it may read, and nothing else. */
async function run(args: readonly string[]): Promise<Replayed> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "--no-check", "--allow-read", "--config", join(ROOT, "deno.json")]
      .concat([join(ROOT, "src/replay/mod.ts"), ...args]),
    env: { NO_COLOR: "1" },
  });
  const { code, stdout, stderr } = await command.output();
  const decoder = new TextDecoder();
  return { code, out: decoder.decode(stdout), error: decoder.decode(stderr) };
}

Deno.test("the command replays the runs of a backup: all go on, and what the module writes is no result", () =>
  withBackup(async (folder, replay) => {
    const { code, out, error } = await replay(moduleWith(), "--db", join(folder, "backup.db"));

    assert.equal(out, "checkout  5 runs  3 go on  2 end the same\n");
    assert.match(error, /^the module writes$/m);
    assert.match(error, /^other {2}1 open run of a job that .*jobs\.ts does not export$/m);
    assert.equal(code, 0);
  }));

Deno.test("the command says which runs would be held, why, and what to declare", () =>
  withBackup(async (folder, replay) => {
    const { code, out } = await replay(moduleWith({ charge: "charge card" }), "--db", join(folder, "backup.db"));

    const [first, second, third] = out.split("\n");
    assert.equal(
      first,
      'checkout  5 runs  5 would be held:  step "charge card" is new while step "charge" is unasked',
    );
    assert.equal(second!.trim(), 'changes: { renamed: { "charge": "charge card" } }');
    assert.match(third!, /^ +for example run [0-9a-f-]{36}$/);
    assert.equal(code, 1);
  }));

Deno.test("the command accepts what is declared, and says what no open run needs", () =>
  withBackup(async (folder, replay) => {
    const options = 'changes: { renamed: { charge: "charge card" }, removed: ["send fax"], added: ["check"] },';
    const db = join(folder, "backup.db");

    const { code, out } = await replay(moduleWith({ charge: "charge card", options }), "--db", db, "--recent", "1");

    assert.equal(
      out,
      "checkout  4 runs  3 go on  1 ends the same\n" +
        '  no open run needs this any more:  changes: { removed: ["send fax"], added: ["check"] }\n',
    );
    assert.equal(code, 0);
  }));

Deno.test("the command prints reports as JSON, of histories in files, too", () =>
  withBackup(async (folder, replay) => {
    const histories = join(folder, "histories");
    const module = moduleWith({ charge: "charge card", exported: "export default" }).replace(
      "export default =",
      "export default",
    );

    const { code, out } = await replay(module, "--history", histories, "--json");

    const reports: ReplayReport[] = JSON.parse(out);
    assert.deepEqual(reports.map(({ status, outcome, code }) => [status, outcome, code]).sort(), [
      ["completed", "held", "diverged"],
      ["waiting", "held", "diverged"],
    ]);
    assert.deepEqual(reports[0]!.suggestion, { renamed: { charge: "charge card" } });
    assert.equal(code, 1);
  }));

Deno.test("the command shows code outside of steps that uses the network", () =>
  withBackup(async (folder, replay) => {
    const module = moduleWith({ before: 'await fetch("http://localhost:8000/rate");' });

    const { code, out } = await replay(module, "--history", join(folder, "histories", "waiting.json"));

    assert.match(out, /1 would be held: {2}the job threw NotCapable: Requires net access/);
    assert.equal(code, 1);
  }));

Deno.test("the command says which open runs wait for another version", () =>
  withBackup(async (folder, replay) => {
    const { code, out } = await replay(moduleWith({ options: "version: 2," }), "--db", join(folder, "backup.db"));

    assert.match(out, /^checkout {2}3 runs {2}3 would wait: {2}No job takes runs of "checkout" version 1/);
    assert.equal(code, 1);
  }));

Deno.test("the command exits with 2 if it is called in a wrong way", () =>
  withBackup(async (folder, replay) => {
    const db = join(folder, "backup.db");
    const empty = join(folder, "empty");
    await Deno.mkdir(empty);
    const aVersion = (version: number) => {
      const path = join(folder, `version_${version}.db`);
      Deno.copyFileSync(db, path);
      using database = new DatabaseSync(path);
      database.exec(version === 0 ? "DROP TABLE holdfast_schema" : `UPDATE holdfast_schema SET version = ${version}`);
      return path;
    };
    const wrong: [args: string[], message: RegExp][] = [
      [[], /--db or --history is missing/],
      [["--db", join(folder, "none.db")], /Cannot read the database .*none\.db/],
      [["--db", join(folder, "jobs.ts")], /Cannot read the database .*file is not a database/],
      [["--db", db, "--job", "chekout"], /jobs\.ts exports no job "chekout"/],
      [["--db", db, "--recent", "many"], /--recent must be a number from 0, not "many"/],
      [["--db", db, "--dbs", "x"], /--dbs/],
      [["--db", aVersion(100), "--job", "checkout"], /has tables of version 100, and this version .*; use a newer one/],
      [["--db", aVersion(0), "--job", "checkout"], /has no tables of Holdfast/],
      [["--history", join(folder, "jobs.ts")], /Cannot use .*jobs\.ts/],
      [["--history", empty], /There is no \.json file in .*empty/],
    ];
    for (const [args, message] of wrong) {
      const { code, out, error } = await replay(moduleWith(), ...args);

      assert.match(error, message);
      assert.deepEqual([code, out], [2, ""]);
    }
    const unlinked =
      `${moduleWith()}\nexport const second = { ...checkout, changes: { ...checkout.changes, version: 2 } };`;
    assert.match((await replay(unlinked, "--db", db)).error, /Two jobs have the name "checkout"/);
    assert.equal((await replay("export const nothing = 1;", "--db", db)).code, 2);
    assert.equal((await replay("throw new Error('no');", "--db", db)).code, 2);
  }));

/** Runs the command in this process. */
async function runHere(args: readonly string[]): Promise<Replayed> {
  const said = { out: "", error: "" };
  const code = await runCommand(args, {
    log: (text) => void (said.out += `${text}\n`),
    command: "holdfast-replay",
    error: (text) => void (said.error += `${text}\n`),
  });
  return { code, ...said };
}

Deno.test("runCommand() replays the jobs that are named, of a database with another journal, too", () =>
  withBackup(async (folder) => {
    const jobs = join(folder, "jobs.ts");
    const db = join(folder, "copy.db");
    await Deno.writeTextFile(jobs, moduleWith({ exported: "const checkout" }) + "export const jobs = { checkout };");
    const database = new DatabaseSync(join(folder, "backup.db"));
    database.prepare("VACUUM INTO ?").run(db);
    database.close();
    const histories = join(folder, "histories");

    const both = await runHere(["--jobs", jobs, "--db", db, "--recent", "0", "--history", histories]);
    const named = await runHere(["--jobs", jobs, "--db", db, "--job", "checkout", "--json"]);
    const help = await runHere(["-h"]);
    const none = await runHere(["--jobs", jobs, "--db", join(folder, "none.db")]);

    assert.deepEqual(both, {
      code: 0,
      out: "checkout  5 runs  4 go on  1 ends the same\n",
      error: `other  1 open run of a job that ${jobs} does not export\n`,
    });
    assert.equal(JSON.parse(named.out).length, 5);
    assert.deepEqual([named.code, named.error], [0, ""]);
    assert.deepEqual([help.code, help.error], [0, ""]);
    assert.deepEqual([none.code, none.out], [2, ""]);
  }));

Deno.test("runCommand() says why an open clean-up would be held, also of a job that is named", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const db = join(folder, "jobs.db");
    const module = (told: string) =>
      moduleWith({ options: `onEnd: { run: (step) => step.run("${told}", () => {}).then(() => step.wait("seen")) },` });
    const checkout = defineJob({
      name: "checkout",
      input: anything,
      onEnd: { run: (step) => step.run("tell", () => {}).then(() => step.wait("seen")) },
      run: () => {},
    });
    await using store = await SqliteStore.open(db);
    await using engine = createEngine({ store, jobs: { checkout } });
    await engine.jobs.checkout.trigger({ order: "1" });
    await engine.runUntilIdle();

    const replay = async (file: string, told: string, ...args: string[]) => {
      await Deno.writeTextFile(join(folder, file), module(told));
      return await runHere(["--jobs", join(folder, file), "--db", db, "--recent", "0", ...args]);
    };
    const same = await replay("same.ts", "tell");
    const changed = await replay("changed.ts", "tell them", "--job", "checkout");

    assert.deepEqual([same.code, same.out], [0, "checkout  0 runs\ncheckout:end  1 run  1 goes on\n"]);
    assert.equal(changed.code, 1);
    assert.match(
      changed.out,
      /checkout:end {2}1 run {2}1 would be held: {2}step "tell them" is new while step "tell" is/,
    );
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("the command prints its help", async () => {
  const { code, out } = await run(["--help"]);

  assert.match(out, /--jobs FILE/);
  assert.equal(code, 0);
});
