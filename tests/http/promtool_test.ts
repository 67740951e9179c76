import assert from "node:assert/strict";
import { FakeHost } from "../support/fake_host.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { aRequest, aService } from "../support/http/http.ts";
import { aJob } from "../support/jobs.ts";
import { findProgram, isFile } from "../support/find_program.ts";

const promtool = findPromtool();
if (promtool === null) {
  console.log(
    "The tests with promtool are skipped: it was not found (PROMTOOL_PATH says where it is; Debian has it in prometheus)",
  );
}

/** The path of promtool: what `PROMTOOL_PATH` says, or one in `PATH`; `null` if there is none. */
function findPromtool(): string | null {
  const chosen = Deno.env.get("PROMTOOL_PATH") ?? "";
  return isFile(chosen) ? chosen : findProgram("promtool");
}

/** Gives promtool a text to check, and returns what it says: nothing if it finds nothing. */
async function check(args: readonly string[], input = ""): Promise<{ code: number; output: string }> {
  const child = new Deno.Command(promtool!, { args: [...args], stdin: "piped", stdout: "piped", stderr: "piped" })
    .spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(input));
  await writer.close();
  const { code, stdout, stderr } = await child.output();
  return { code, output: [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes)).join("") };
}

/** What a busy service says, whatever the names of its jobs. */
async function busyMetrics(): Promise<string> {
  const host = new FakeHost();
  const jobs = Object.fromEntries(
    ['quote"d', "back\\slash", "line\u2028x", "ünï"].map((name, n) => [
      `odd${n}`,
      aJob((step) => step.run("s", () => null), name),
    ]),
  );
  await using service = aService({}, { store: new MemoryStore({ host }), host }, jobs);
  for (const { name } of Object.values(jobs)) await service.engine.trigger(name, {});
  await service.engine.trigger("fail", {});
  await service.engine.trigger("approval", {});
  await service.engine.runUntilIdle();
  host.advance(1_000);
  return await (await service.handler.fetch(aRequest("GET", "/metrics"))).text();
}

Deno.test("promtool finds nothing wrong with GET /metrics", { ignore: promtool === null }, async () => {
  const { code, output } = await check(["check", "metrics"], await busyMetrics());

  assert.deepEqual([code, output], [0, ""]);
});

/** The YAML of docs/guides/operate.md that begins so. */
async function readYaml(start: string): Promise<string> {
  const page = await Deno.readTextFile(new URL("../../docs/guides/operate.md", import.meta.url));
  const found = [...page.matchAll(/```yaml\n(.*?)```/gs)].map(([, yaml]) => yaml!).find((yaml) =>
    yaml.startsWith(start)
  );
  assert.ok(found !== undefined, `docs/guides/operate.md has no YAML that begins with ${start}`);
  return found;
}

/** A folder with files, which promtool reads. */
async function aFolder(files: { readonly [name: string]: string }): Promise<{ path: string } & AsyncDisposable> {
  const path = await Deno.makeTempDir();
  for (const [name, text] of Object.entries(files)) await Deno.writeTextFile(`${path}/${name}`, text);
  return { path, [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }) };
}

Deno.test(
  "promtool accepts the alerts and the scrape of docs/guides/operate.md",
  { ignore: promtool === null },
  async () => {
    await using folder = await aFolder({
      "rules.yml": await readYaml("groups:"),
      "prometheus.yml": (await readYaml("scrape_configs:")).replace("/etc/prometheus/holdfast.token", "token"),
      token: "secret",
    });

    const rules = await check(["check", "rules", `${folder.path}/rules.yml`]);
    const scrape = await check(["check", "config", `${folder.path}/prometheus.yml`]);

    assert.deepEqual([rules.code, scrape.code], [0, 0], rules.output + scrape.output);
    assert.match(rules.output, /SUCCESS: 5 rules found/);
  },
);

/** The values of a series: so many each minute of two days, or rising by that number. */
const constant = (value: number) => `${value}x2880`;
const rising = (step: number) => `0+${step}x2880`;
const JOB_B = { exp_labels: { job: "b" } };

/** What two processes say of job "a", which is well, and of job "b", which is not. */
const SERIES: Readonly<Record<string, string>> = {
  'holdfast_oldest_due_seconds{job="a",instance="1"}': constant(59),
  'holdfast_oldest_due_seconds{job="b",instance="1"}': constant(61),
  'holdfast_oldest_due_seconds{job="b",instance="2"}': constant(61),
  'holdfast_oldest_due_seconds{job="paused",instance="1"}': constant(1_000_000),
  'holdfast_job_paused{job="a",instance="1"}': constant(0),
  'holdfast_job_paused{job="b",instance="1"}': constant(0),
  'holdfast_job_paused{job="b",instance="2"}': constant(0),
  'holdfast_job_paused{job="paused",instance="1"}': constant(1),
  'holdfast_runs_ended_total{job="a",status="completed",instance="1"}': rising(100),
  'holdfast_runs_ended_total{job="a",status="failed",instance="1"}': rising(10),
  'holdfast_runs_ended_total{job="b",status="completed",instance="1"}': rising(80),
  'holdfast_runs_ended_total{job="b",status="failed",instance="2"}': rising(10),
  'holdfast_workers{state="live",instance="1"}': constant(2),
  'holdfast_workers{state="lost",instance="1"}': constant(1),
  'holdfast_store_errors_total{code="unavailable",instance="1"}': rising(10),
};

/** When each alert fires, and when not yet, with which labels. The rate of the store is above its limit after three minutes. */
const ALERTS: readonly [alertname: string, firesAt: string, notAt: string, alerts: readonly object[]][] = [
  ["HoldfastRunsAreNotStarted", "5m", "4m", [JOB_B]],
  ["HoldfastRunsFail", "11m", "10m", [JOB_B]],
  ["HoldfastWorkerLost", "1m", "0m", [{ exp_labels: {} }]],
  ["HoldfastStoreFails", "9m", "5m", [{ exp_labels: {} }]],
  ["HoldfastJobPaused", "1440m", "1439m", [{ exp_labels: { job: "paused" } }]],
];

Deno.test(
  "each alert of docs/guides/operate.md fires when it should, and for what it should",
  { ignore: promtool === null },
  async () => {
    const rules = await readYaml("groups:");
    const withoutAnnotations = rules.replaceAll(/^ +annotations:\n +summary:.*\n/gm, "");
    const tests = ALERTS.flatMap(([alertname, firesAt, notAt, exp_alerts]) => [
      { eval_time: notAt, alertname, exp_alerts: [] },
      { eval_time: firesAt, alertname, exp_alerts },
    ]);
    const test = {
      rule_files: ["rules.yml"],
      evaluation_interval: "1m",
      tests: [{
        interval: "1m",
        input_series: Object.entries(SERIES).map(([series, values]) => ({ series, values })),
        alert_rule_test: tests,
      }],
    };
    await using folder = await aFolder({ "rules.yml": withoutAnnotations, "test.yml": JSON.stringify(test) }); // JSON is YAML

    const { code, output } = await check(["test", "rules", `${folder.path}/test.yml`]);

    assert.equal(code, 0, output);
  },
);
