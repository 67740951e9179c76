import assert from "node:assert/strict";
import { Child } from "../processes/child.ts";

const SUITE = "npm:@modelcontextprotocol/conformance@0.2.0-alpha.12";
const STATELESS = ["--spec-version", "2026-07-28"];
/** The scenarios of the suite that are about what this server serves, and how they are started. */
const SCENARIOS: Readonly<Record<string, readonly string[]>> = {
  "tasks-lifecycle": [],
  "tasks-capability-negotiation": [],
  "tasks-wire-fields": [],
  "tasks-request-state-removal": [],
  "tasks-mrtr-input": [],
  "tasks-request-headers": [],
  "tasks-dispatch-and-envelope": [],
  "tasks-required-task-error": [],
  "tasks-mrtr-composition": [],
  "server-stateless": STATELESS,
  "http-header-validation": STATELESS,
  "dns-rebinding-protection": STATELESS,
  "tools-list": STATELESS,
};
/** How many checks may be on the list: it does not grow. */
const MOST_NOT_SERVED = 5;
const CHECK = /^\S+Z \[(\S+) *\] (SUCCESS|FAILURE|WARNING|SKIPPED|INFO)/gm;

/** The checks that are not passed, by scenario. */
function readList(text: string): Record<string, string[]> {
  const list: Record<string, string[]> = {};
  let checks: string[] = [];
  for (const line of text.split("\n")) {
    const [, scenario] = /^([\w-]+):$/.exec(line) ?? [];
    const [, check] = /^ {2}([\w-]+): \S/.exec(line) ?? [];
    if (scenario !== undefined) list[scenario] = checks = [];
    if (check !== undefined) checks.push(check);
  }
  return list;
}

const notServed = readList(await Deno.readTextFile(new URL("../mcp/not_served.yml", import.meta.url)));

/** The results of the checks of a scenario. */
async function check(scenario: string, url: string): Promise<{ id: string; status: string }[]> {
  const folder = await Deno.makeTempDir(); // the suite writes its results where it is started
  try {
    const { stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-A",
        "--no-lock",
        "--quiet",
        SUITE,
        "server",
        "--url",
        url,
        "--scenario",
        scenario,
        ...SCENARIOS[scenario]!,
      ],
      cwd: folder,
      env: { NO_COLOR: "1" },
    }).output();
    const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
    // deno-lint-ignore no-control-regex -- the suite colours what it says
    return [...text.replaceAll(/\x1b\[\d+m/g, "").matchAll(CHECK)].map(([, id, status]) => ({
      id: id!,
      status: status!,
    }));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("the conformance suite of MCP finds nothing but what tests/mcp/not_served.yml says", async (context) => {
  await using server = new Child("mcp_server.ts");
  const { url } = await server.hear("listening");
  let passed = 0;

  for (const scenario of Object.keys(SCENARIOS)) {
    await context.step(scenario, async () => {
      const results = await check(scenario, String(url));

      const failed = results.filter(({ status }) => status === "FAILURE" || status === "WARNING").map(({ id }) => id);
      assert.deepEqual([...new Set(failed)].sort(), (notServed[scenario] ?? []).toSorted());
      passed += results.filter(({ status }) => status === "SUCCESS").length;
    });
  }

  assert.ok(passed >= 83, `${passed} checks passed`);
});

Deno.test("the list of what is not served does not grow", () => {
  assert.ok(Object.values(notServed).flat().length <= MOST_NOT_SERVED);
  assert.deepEqual(Object.keys(notServed).filter((scenario) => SCENARIOS[scenario] === undefined), []);
});
