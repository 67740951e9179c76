import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { inTime } from "../processes/deadline.ts";
import { TextLineStream } from "../processes/text_line_stream.ts";
import { aFolder } from "../create/a_folder.ts";

const ROOT = new URL("../../", import.meta.url);

/** A `deno` in a folder, without what this process was told of coverage. */
function deno(args: readonly string[], cwd: string, more: Record<string, string> = {}): Deno.Command {
  const { DENO_COVERAGE_DIR: _left, ...env } = Deno.env.toObject();
  return new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd,
    clearEnv: true,
    env: { ...env, NO_COLOR: "1", ...more },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  });
}

async function assertPasses(command: Deno.Command): Promise<string> {
  const { code, stdout, stderr } = await command.output();
  const [out, error] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  assert.equal(code, 0, `${out}\n${error}`);
  return out!;
}

/** Makes an app by the command, and lets it import this repository instead of the published package. */
async function makeApp(folder: string): Promise<{ app: string; start: string[] }> {
  const app = join(folder, "shop");
  const command = fileURLToPath(new URL("src/create/mod.ts", ROOT));
  await assertPasses(deno(["run", "-A", "--no-check", command, "shop"], folder));
  const manifest = JSON.parse(await Deno.readTextFile(join(app, "deno.json")));
  const own = JSON.parse(await Deno.readTextFile(new URL("deno.json", ROOT)));
  const imports = Object.entries(own.imports as Record<string, string>).filter(([, to]) => !to.startsWith("jsr:"))
    .map(([from, to]) => [from, to.startsWith("./") ? new URL(to, ROOT).href : to]);
  await Deno.writeTextFile(
    join(app, "deno.json"),
    JSON.stringify({ ...manifest, imports: Object.fromEntries(imports) }),
  );
  return { app, start: manifest.tasks.start.split(" ").slice(1) };
}

Deno.test("the app for Deno is formatted, has no lint and no type errors, and passes its test", async () => {
  await using folder = await aFolder();
  const { app } = await makeApp(folder.path);

  await assertPasses(deno(["fmt", "--check", "--ignore=deno.json"], app));
  await assertPasses(deno(["lint"], app));
  await assertPasses(deno(["check"], app));
  const told = await assertPasses(deno(["task", "test"], app));

  assert.match(told, /3 passed \| 0 failed/);
});

Deno.test("the app for Deno serves its dashboard and executes a run, with the permissions of its task", async () => {
  await using folder = await aFolder();
  const { app, start } = await makeApp(folder.path);
  const server = deno(start, app, { PORT: "0", TOKEN: "", HOST: "" }).spawn();
  const reader = server.stdout.pipeThrough(new TextLineStream()).getReader();
  try {
    const { value: line = "" } = await inTime(reader.read(), "the server was to listen");
    const page = /^Dashboard: (http:\S+)ui\/$/.exec(line)?.[1];
    assert.ok(page !== undefined, line);

    const dashboard = await fetch(`${page}ui/`);
    const triggered = await fetch(`${page}trigger`, {
      method: "POST",
      body: JSON.stringify({ jobName: "order", input: { item: "book", amount: 20 } }),
    });

    assert.match(await dashboard.text(), /<!doctype html>/i);
    const { runId } = await triggered.json();
    const events = await inTime(
      fetch(`${page}subscribe?runId=${runId}`).then((response) => response.text()),
      "the end",
    );
    assert.match(events, /"type":"run:complete"/);
    const run = await (await fetch(`${page}run?runId=${runId}`)).json();
    assert.deepEqual([run.status, run.output], ["completed", { status: "sent", parcels: 1 }]);
  } finally {
    server.kill("SIGKILL");
    await Promise.all([server.status, server.stderr.cancel(), reader.cancel()]);
  }
});

Deno.test("the app for Deno serves other machines only with a token, and asks each caller for it", async () => {
  await using folder = await aFolder();
  const { app, start } = await makeApp(folder.path);

  const refused = await deno(start, app, { HOST: "0.0.0.0", PORT: "0", TOKEN: "" }).output();
  const server = deno(start, app, { HOST: "0.0.0.0", PORT: "0", TOKEN: "secret" }).spawn();
  const reader = server.stdout.pipeThrough(new TextLineStream()).getReader();
  try {
    const { value: line = "" } = await inTime(reader.read(), "the server was to listen");
    const runs = line.replace("Dashboard: ", "").replace("0.0.0.0", "127.0.0.1").replace("ui/", "runs");
    const statuses = await Promise.all([undefined, "Bearer wrong", "Bearer secret"].map(async (authorization) => {
      const response = await fetch(runs, authorization === undefined ? {} : { headers: { authorization } });
      await response.body?.cancel();
      return response.status;
    }));

    assert.equal(refused.code, 1);
    assert.match(new TextDecoder().decode(refused.stderr), /Set TOKEN: everybody who reaches 0\.0\.0\.0/);
    assert.deepEqual(statuses, [401, 401, 200]);
  } finally {
    server.kill("SIGKILL");
    await Promise.all([server.status, server.stderr.cancel(), reader.cancel()]);
  }
});
