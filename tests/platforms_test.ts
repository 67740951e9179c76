import assert from "node:assert/strict";
import { readdirSync } from "node:fs";

const ROOT = new URL("../", import.meta.url);

/** What some systems lack, with the files and folders that may use it because they are skipped there, or never run there. */
const RULES: readonly { name: string; pattern: RegExp; why: string; where: readonly string[] }[] = [
  {
    name: "/proc",
    pattern: /\/proc\//,
    why: "only Linux has /proc",
    // The first answers nothing elsewhere, and the second needs a server of its own as Debian installs it.
    where: ["bench/postgres/server_cpu.ts", "bench/job_queues/replicas.ts", "tests/torture/is_suspended.ts"],
  },
  {
    name: "SIGSTOP and SIGCONT",
    pattern: /"SIG(?:STOP|CONT)"/,
    why: "Windows cannot suspend a process",
    where: ["tests/torture/", "tests/linearizability/", "tests/stores/postgres/processes/"],
  },
  {
    name: "a signal other than SIGKILL",
    pattern: /\.(?:kill|signal|end)\("SIG(?!KILL)/,
    why: "Windows ends a process at once, whatever the signal: ask needs() first",
    where: [
      "bench/workloads/watch.ts",
      "bench/job_queues/replicas.ts",
      "examples/dashboard.ts",
      "examples/demo/worker_process.ts",
      "tests/examples_test.ts",
      "tests/node_test.ts",
      "tests/processes_test.ts",
      "tests/shutdown_processes_test.ts",
      "tests/stores/postgres/",
      "tests/torture/",
      "tests/linearizability/",
    ],
  },
  {
    name: "addSignalListener()",
    pattern: /addSignalListener\((?!"SIGINT")/,
    why: "Deno refuses other signals on Windows: process.on() ignores them",
    where: ["tests/stores/postgres/run_tests.ts", "tests/torture/torture.ts"],
  },
  {
    name: "chmod(), symlink() and modes",
    pattern: /\bchmod\(|\bsymlink(?:Sync)?\(|\.mode!? &/,
    why: "Windows has no file modes, and lets few users make links: ask needs() first",
    where: ["tests/stores/sqlite/"],
  },
  {
    name: "a path of Unix",
    pattern: /["'`]\/(?:bin|dev|tmp|usr|var)\//,
    why: "only Unix has these folders: Deno.makeTempDir() and the PATH are everywhere",
    where: ["tests/cli/process_test.ts", "tests/stores/postgres/"],
  },
  {
    name: "a shell",
    pattern: /Command\("(?:ba)?sh"/,
    why: "Windows has no such shell",
    where: ["tests/torture/"],
  },
  {
    name: ".pathname of a file",
    pattern: /import\.meta\.url\)\.pathname/,
    why: "on Windows that is no path: use fileURLToPath()",
    where: [],
  },
  {
    name: "a PATH that is split at colons",
    pattern: /PATH"?\)?\??\.split\(":"\)/,
    why: "on Windows the PATH is divided by semicolons: use delimiter of node:path",
    where: [],
  },
];

const files = ["src", "tests", "bench", "examples", "templates", "tools"].flatMap((folder) =>
  readdirSync(new URL(folder, ROOT), { encoding: "utf8", recursive: true })
    .map((name) => `${folder}/${name.replaceAll("\\", "/")}`)
).filter((name) => name.endsWith(".ts") && name !== "tests/platforms_test.ts" && name !== "src/create/templates.ts");

const texts = new Map(files.map((name) => [name, Deno.readTextFileSync(new URL(name, ROOT))]));

for (const { name, pattern, why, where } of RULES) {
  Deno.test(`${name}: in known places only, since ${why}`, () => {
    const found = files.filter((file) => pattern.test(texts.get(file)!));

    assert.deepEqual(found.filter((file) => !where.some((place) => file.startsWith(place))), []);
    assert.deepEqual(where.filter((place) => !found.some((file) => file.startsWith(place))), [], "no longer needed");
  });
}

Deno.test("tests that send signals, or look at file modes, say so", () => {
  const careful = files.filter((name) =>
    name.endsWith("_test.ts") && !/^tests\/(?:torture|stores\/postgres)\//.test(name)
  )
    .filter((name) => /\.(?:kill|signal|end)\("SIG(?!KILL)|\bchmod\(|\bsymlink\(/.test(texts.get(name)!));

  assert.deepEqual(careful.filter((name) => !/\bneeds\("/.test(texts.get(name)!)), []);
});

Deno.test("no module of src/ has a using declaration, which Node 22 does not know", () => {
  const sources = files.filter((file) => file.startsWith("src/"));

  assert.deepEqual(sources.filter((file) => /^\s*(?:await )?using \w+ = /m.test(texts.get(file)!)), []);
});
