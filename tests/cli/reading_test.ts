import assert from "node:assert/strict";
import { join, relative } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { cwd } from "node:process";
import { PACKAGE_VERSION } from "../../src/model/version.ts";
import { addFailedParent } from "../../src/testing/contract/records/children/arrange_children.ts";
import { COMMANDS } from "../../src/cli/run_cli.ts";
import { refusalOf } from "../../src/cli/service/api.ts";
import { getWaits } from "../../src/store/reads.ts";
import { aRun } from "../support/fixtures.ts";
import { callCli } from "./call_cli.ts";
import { aFile, aServer, fill } from "./places.ts";

Deno.test("holdfast runs lists the runs that match, newest first", async () => {
  await using file = await aFile();
  const { failed, completed } = await fill(file.store);

  const all = await callCli(["runs", ...file.args, "--json"]);
  const own = await callCli(["runs", ...file.args, "--json", "--label", "org=acme", "--since", "1h"]);
  const none = await callCli(["runs", ...file.args, "--status", "cancelled"]);

  assert.equal(all.json.length, 5);
  assert.deepEqual(own.json.map(({ id }) => id), [failed, completed]);
  assert.deepEqual([none.code, none.lines, none.notes], [0, [], ["No runs match"]]);
});

Deno.test("holdfast runs says that more runs match than are counted", async () => {
  await using file = await aFile();
  await file.store.enqueue(Array.from({ length: 10_001 }, () => aRun({ labels: { org: "acme" } })));

  const { notes } = await callCli(["runs", ...file.args, "--limit", "2", "--label", "org=acme"]);

  // A count ends after 50 ms, too: a busy machine has counted fewer by then.
  assert.match(notes.join("\n"), /^2 of (10,000|[\d,]{1,5}) or more runs; --limit shows more$/);
});

Deno.test("holdfast runs --json lists pages as they are read, also if the last run of one is deleted meanwhile", async () => {
  await using file = await aFile();
  const [oldest] = await file.store.enqueue(Array.from({ length: 2_002 }, () => aRun()));
  using database = new DatabaseSync(file.path);
  const remove = database.prepare("DELETE FROM holdfast_runs WHERE id IN (?, ?, ?)");
  const listed: string[] = [];

  const { code } = await callCli(["runs", ...file.args, "--limit", "3000", "--json"], {
    onLine: (line) => {
      if (listed.push(JSON.parse(line).id) === 1_000) remove.run(listed[998]!, listed[999]!, oldest!.run.id);
    },
  });

  assert.equal(code, 0);
  assert.equal(listed.length, 2_001);
  assert.equal(new Set(listed).size, 2_001);
});

Deno.test("holdfast runs says how many more there are", async () => {
  await using file = await aFile();
  await fill(file.store);

  const { lines, notes } = await callCli(["runs", ...file.args, "--limit", "2"]);

  assert.equal(lines.length, 3); // with the titles
  assert.deepEqual(notes, ["2 of 5 runs; --limit shows more"]);
});

Deno.test("holdfast children counts the children of a run, and lists those to act on", async () => {
  await using file = await aFile();
  const { runId, children } = await addFailedParent(file.store);
  const failed = children[1]!;

  const { lines, notes } = await callCli(["children", runId, ...file.args, "--limit", "1"]);
  const all = await callCli(["children", runId.slice(-12), ...file.args, "--json"]);
  const held = await callCli(["children", runId, ...file.args, "--held"]);

  assert.equal(lines.length, 2); // with the titles
  assert.ok(lines[1]!.includes(failed));
  assert.deepEqual(notes, [
    "4 children: 1 failed, 1 cancelled, 2 completed; a retry from the failure executes 2 of them again",
  ]);
  assert.deepEqual(all.json.map(({ id }) => id), [failed, children[2], children[3], children[0]]);
  assert.equal(held.notes[0], "No children match");
});

Deno.test("holdfast show shows a run with its steps, its error and its stack; a part of the id is enough", async () => {
  await using file = await aFile();
  const { failed } = await fill(file.store);

  const { code, lines } = await callCli(["show", failed.slice(-12), ...file.args]);

  const text = lines.join("\n");
  assert.equal(code, 0);
  for (
    const part of [failed, "✕ failed", "org=acme", "2 steps", "download", "ConnectionRefused: 10.0.3.7:5432\n    at "]
  ) {
    assert.ok(text.includes(part), `${part} is missing in ${text}`);
  }
});

Deno.test("holdfast timeline lists what a run has done, and who did it", async () => {
  await using file = await aFile();
  const { failed, waiting } = await fill(file.store);
  const [wait] = await getWaits(file.store, waiting);
  await callCli(["signal", wait!.id, "true", ...file.args, "--by", "ada"]);
  await callCli(["cancel", waiting, ...file.args, "--yes", "--by", "bob"]);

  const ofFailed = await callCli(["timeline", failed.slice(-12), ...file.args]);
  const ofWaiting = await callCli(["timeline", waiting, ...file.args]);
  const { json: [whole] } = await callCli(["timeline", waiting, ...file.args, "--json"]);

  const text = [...ofFailed.lines, ...ofWaiting.lines].join("\n");
  for (
    const part of [
      "Triggered 20",
      "queued",
      "download",
      "ConnectionRefused",
      "Ended 20",
      "signal by ada",
      "review",
      "Cancelled 20",
    ]
  ) assert.ok(text.includes(part), `${part} is missing in ${text}`);
  assert.match(ofWaiting.lines.at(-1)!, / by bob$/);
  assert.deepEqual([whole.runId, whole.cancelledBy, whole.rows.length, whole.next], [
    waiting,
    "bob",
    whole.total,
    null,
  ]);
});

Deno.test("holdfast why says in one sentence what holds a run up", async () => {
  await using file = await aFile();
  const { waiting, first } = await fill(file.store);

  const [wait, due] = [await callCli(["why", waiting, ...file.args]), await callCli(["why", first, ...file.args])];

  assert.match(wait.lines[0]!, /^Waiting for a signal to "review"/);
  assert.match(due.lines[0]!, /^Pending: no worker is live/);
});

Deno.test("holdfast jobs, workers, waits and stats show what the API has", async () => {
  await using file = await aFile();
  const { waiting } = await fill(file.store);

  const [jobs, workers, waits, stats] = await Promise.all(
    ["jobs", "workers", "waits", "stats"].map((name) => callCli([name, ...file.args, "--json"])),
  );

  assert.deepEqual(jobs!.json.map(({ jobName, byStatus }) => [jobName, byStatus.pending]), [["approve", 0], [
    "import-csv",
    2,
  ]]);
  assert.deepEqual(workers!.json, []);
  assert.deepEqual(waits!.json.map(({ runId, name }) => [runId, name]), [[waiting, "review"]]);
  assert.deepEqual([stats!.json[0].total, stats!.json[0].byStatus.failed], [5, 1]);
});

Deno.test("holdfast exits with 1 if there is no such run, 2 if it is called in a wrong way, 3 if the store is out of reach", async () => {
  await using file = await aFile();
  const path = file.path;
  const gone = "http://127.0.0.1:1/api";

  const codes = async (...calls: string[][]) =>
    await Promise.all(calls.map(async (args) => {
      const { code, lines, notes } = await callCli(args);
      assert.deepEqual(lines, []);
      assert.equal(notes.length, 1, `${args}: ${notes}`);
      return code;
    }));

  assert.deepEqual(await codes(["show", "nothing", ...file.args]), [1]);
  assert.deepEqual(
    await codes(
      ["runs"],
      ["nothing", ...file.args],
      ["show", ...file.args],
      ["show", "a", "b", ...file.args],
      ["runs", "--jobs", "x", ...file.args],
      ["runs", "--status", "done", ...file.args],
      ["runs", "--since", "soon", ...file.args],
      ["runs", "--label", "org", ...file.args],
      ["runs", "--limit", "0", ...file.args],
      ["runs", "--store", "mysql://x"],
      ["runs", "--store", "https://user:secret@example.com/"],
      ["runs", "--store", path, "--token-file", "x"],
      ["runs", "--store", gone, "--migrate"],
    ),
    Array(13).fill(2),
  );
  assert.deepEqual(
    await codes(["runs", "--store", `${path}.none`], ["runs", "--store", gone], ["jobs", "--store", gone]),
    [3, 3, 3],
  );
});

Deno.test("holdfast migrate makes the tables, and once they are there does nothing", async () => {
  const path = await Deno.makeTempFile({ suffix: ".db" });

  const first = await callCli(["migrate", "--store", path]);
  const again = await callCli(["migrate", "--store", path, "--json"]);
  const runs = await callCli(["runs", "--store", path]);
  const service = await callCli(["migrate", "--store", "http://127.0.0.1:1/api/jobs"]);

  assert.deepEqual([first.code, again.code, runs.code, service.code], [0, 0, 0, 2]);
  assert.deepEqual(first.lines, [`The database has the tables of Holdfast ${PACKAGE_VERSION}`]);
  assert.equal(again.json[0].version, PACKAGE_VERSION);
  assert.match(service.notes.join(), /give it as --store, not a service/);
  await Deno.remove(path);
});

Deno.test("holdfast neither makes nor migrates a database without --migrate", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/other.db`;
  Deno.writeFileSync(path, new Uint8Array());

  const refused = await callCli(["runs", "--store", path]);
  const size = Deno.statSync(path).size;
  const migrated = await callCli(["runs", "--store", path, "--migrate"]);

  assert.deepEqual([refused.code, size, migrated.code], [3, 0, 0]);
  assert.match(refused.notes[0]!, /has no tables of Holdfast/);
  await Deno.remove(folder, { recursive: true });
});

Deno.test("holdfast sends the token of the environment, or of a file, to a service", async () => {
  await using file = await aFile();
  await using server = await aServer(file.store, { token: "secret" });
  const tokenFile = `${file.path}.token`;
  await Deno.writeTextFile(tokenFile, "secret\n");

  const without = await callCli(["jobs", ...server.args]);
  const byEnvironment = await callCli(["jobs", ...server.args], { env: { HOLDFAST_TOKEN: "secret" } });
  const byFile = await callCli(["jobs", ...server.args, "--token-file", tokenFile]);
  const byArgument = await callCli(["jobs", ...server.args, "--token", "secret"]);

  assert.deepEqual([without, byEnvironment, byFile, byArgument].map(({ code }) => code), [1, 0, 0, 2]);
});

Deno.test("holdfast fits tables to the terminal, and colors only where that is wanted", async () => {
  await using file = await aFile();
  await fill(file.store);

  const narrow = await callCli(["runs", ...file.args], { columns: 90 });
  const colored = await callCli(["runs", ...file.args], { columns: 200, hasColors: true });
  const piped = await callCli(["runs", ...file.args]);

  assert.ok(narrow.lines.every((line) => [...line].length <= 90), narrow.lines.join("\n"));
  assert.ok(narrow.lines.some((line) => line.endsWith("…")));
  assert.ok(colored.lines.some((line) => line.includes("\x1b[31m✕ failed\x1b[0m")));
  assert.ok(piped.lines.every((line) => !line.includes("\x1b")));
});

Deno.test("holdfast escapes control characters of names and values", async () => {
  await using file = await aFile();
  const { createEngine } = await import("../../src/engine/create_engine.ts");
  const { aJob } = await import("../support/jobs.ts");
  await using engine = createEngine({
    store: file.store,
    logger: null,
    jobs: {
      evil: aJob((step) => {
        return step.run("a\u202eb", () => {
          throw new Error("\x1b[2Jgone\u0085\n\x07");
        });
      }, "evil"),
    },
  });
  const { id } = await engine.trigger("evil", {});
  await engine.runUntilIdle();

  const called = await Promise.all([
    callCli(["show", id, ...file.args]),
    callCli(["show", id, ...file.args, "--json"]),
    callCli(["runs", ...file.args]),
    callCli(["why", id, ...file.args]),
  ]);

  // deno-lint-ignore no-control-regex -- that is what it looks for
  for (const { lines } of called) assert.doesNotMatch(lines.join(""), /[\u0000-\u001f\u007f-\u009f\u202e]/);
  assert.equal(called[1]!.json[0].run.error, "\x1b[2Jgone\u0085\n\x07");
});

Deno.test("holdfast help lists every command, and each command lists its options", async () => {
  const help = await callCli(["--help"]);
  const runs = await callCli(["help", "runs"]);
  const show = await callCli(["show", "--help"]);

  assert.deepEqual([help.code, runs.code, show.code], [0, 0, 0]);
  for (const { name, about } of COMMANDS) {
    assert.match(help.lines.join("\n"), new RegExp(`^  ${name} +${about[0]}`, "m"));
  }
  assert.match(runs.lines.join("\n"), /--label KEY=VALUE/);
  assert.match(show.lines.join("\n"), /holdfast show RUN/);
});

Deno.test("holdfast says that a store is a directory", async () => {
  const { code, notes } = await callCli(["runs", "--store", import.meta.dirname!]);

  assert.equal(code, 3);
  assert.match(notes.join(), /^Cannot open ".*": it is a directory; name a file in it$/);
});

Deno.test("holdfast says in one line what an option lacks", async () => {
  const { code, notes } = await callCli(["purge", "--older-than", "-1"]);

  assert.equal(code, 2);
  assert.match(notes.join(), /^Option '--older-than' argument is ambiguous\. Did you forget [^\\]*$/);
});

Deno.test("holdfast exits with 3 if an answer is cut off, or a proxy says that the service is away", async () => {
  const cut = new TransformStream<Uint8Array, Uint8Array>();
  await using server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {}, onError: () => new Response() },
    (request) => {
      if (request.url.endsWith("/workers")) return new Response("<h1>Bad Gateway</h1>", { status: 502 });
      const writer = cut.writable.getWriter();
      void writer.write(new TextEncoder().encode('{"total":')).then(() => writer.abort("cut off")).catch(() => {});
      return new Response(cut.readable);
    },
  );
  const store = ["--store", `http://127.0.0.1:${server.addr.port}`];

  const stats = await callCli(["stats", ...store]);
  const workers = await callCli(["workers", ...store]);

  assert.equal(stats.code, 3);
  assert.match(stats.notes.join(), /^The answer of the service was cut off: /);
  assert.deepEqual([workers.code, workers.notes], [3, ["The service cannot answer: 502 Bad Gateway"]]);
});

Deno.test("holdfast says that the address of a service lacks its base path", async () => {
  await using file = await aFile();
  await using server = await aServer(file.store);
  const address = server.args[1]!.replace("/api/jobs", "");

  const { code, notes } = await callCli(["waits", "--store", address]);

  const message = `There is no such path at ${address}/waits/open: --store must end with the basePath of the service`;
  assert.deepEqual([code, notes], [3, [message]]);
});

Deno.test("what a service refuses is shown with the places of its issues, if they have some", () => {
  const issues = [{ path: [], message: "expected a string" }, { path: ["to", 0], message: "too short" }];
  const body = JSON.stringify({ error: "The input does not fit", code: "invalid_input", issues });

  const { message } = refusalOf(new Response(null, { status: 400 }), body);

  assert.equal(message, "The input does not fit; expected a string; to.0: too short");
});

Deno.test("holdfast reads a relative file: address from the current directory", async () => {
  await using file = await aFile();
  const address = `file:${relative(cwd(), file.path)}`;

  const found = await callCli(["stats", "--store", address]);
  const none = await callCli(["stats", "--store", "file:none.db"]);

  assert.equal(found.code, 0);
  assert.deepEqual([none.code, none.notes], [3, [`Cannot open "${join(cwd(), "none.db")}": there is no such file`]]);
});

Deno.test("holdfast exits with 3 if something else answers at the address", async () => {
  await using server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, () => Response.json({}));
  const store = ["--store", `http://127.0.0.1:${server.addr.port}`];

  for (const command of ["runs", "stats", "jobs", "workers"]) {
    const { code, notes } = await callCli([command, ...store]);

    assert.equal(code, 3);
    assert.match(
      notes.join(),
      /^There is no Holdfast service of this version at this address: its answer has another form/,
    );
  }
});
