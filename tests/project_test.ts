import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { appFiles } from "../src/create/run_create.ts";
import { findChangelogFaults, findObstacles } from "../tools/check_release.ts";

const ROOT = new URL("../", import.meta.url);
const read = (file: string) => Deno.readTextFile(new URL(file, ROOT));
const { tasks } = JSON.parse(await read("deno.json"));
const appTasks = JSON.parse(appFiles("my-app", "deno").get("deno.json")!).tasks;

for (
  const file of [
    "CONTRIBUTING.md",
    "README.md",
    ".ci/run",
    ".github/workflows/ci.yml",
    ".github/workflows/docs.yml",
    ".github/workflows/release.yml",
  ]
) {
  Deno.test(`${file} names only tasks that exist, here or in an app that is made`, async () => {
    const named = [...(await read(file)).matchAll(/deno task ([a-z][a-z:-]*)/g)].map(([, name]) => name!);

    assert.deepEqual(named.filter((name) => !(name in tasks) && !(name in appTasks)), []);
  });
}

Deno.test("CONTRIBUTING.md names only files that exist", async () => {
  const text = await read("CONTRIBUTING.md");
  const named = [...text.matchAll(/`((?:src|tests|tools|bench|docs|templates)\/[\w./]*)`|\]\(([\w./]+)[)#]/g)]
    .map(([, code, link]) => (code ?? link)!);

  const missing = named.filter((path) => !exists(path));

  assert.ok(named.length > 20);
  assert.deepEqual(missing, []);
});

function exists(path: string): boolean {
  try {
    Deno.statSync(new URL(path, ROOT));
    return true;
  } catch {
    return false;
  }
}

Deno.test("the CI of GitHub runs every task of tests", async () => {
  const workflow = await read(".github/workflows/ci.yml");
  const names = Object.keys(tasks).filter((name) => /^test(?::|$)/.test(name) && name !== "test:scale");

  assert.deepEqual(
    names.filter((name) => !workflow.includes(`deno task ${name}\n`) && !workflow.includes(`"${name}"`)),
    [],
  );
});

for (const folder of ["bench", "examples"]) {
  Deno.test(`${folder}/deno.json has what src/ imports, in the versions of deno.json`, async () => {
    const { imports } = JSON.parse(await read("deno.json"));
    const own = JSON.parse(await read(`${folder}/deno.json`)).imports;
    const packages = new Set<string>();
    for (const file of readdirSync(new URL("src", ROOT), { encoding: "utf8", recursive: true })) {
      if (!file.endsWith(".ts") || file.endsWith("build_assets.ts")) continue; // that one is no part of the package
      const names = (await read(`src/${file}`)).matchAll(/^[^*/]*(?:from "([^".]+)"|import\("([^".]+)"\))/gm);
      for (const [, from, dynamic] of names) {
        const name = from ?? dynamic!;
        if (imports[name]?.startsWith("npm:")) packages.add(name);
      }
    }

    assert.ok(packages.size >= 4, [...packages].join());
    for (const name of packages) assert.equal(own[name], imports[name], `${name} in ${folder}/deno.json`);
  });
}

/** The commands of a workflow: each `run`, with the lines below it that are further in. */
function commandsIn(workflow: string): string[] {
  return [...workflow.matchAll(/^( *)(?:- )?run:.*(?:\n\1 +.*)*/gm)].map(([command]) => command);
}

for (const name of ["ci", "docs", "release"]) {
  Deno.test(`the workflow ${name}.yml executes actions by the hash of a commit, leaves no credentials, and no value is part of a command`, async () => {
    const workflow = await read(`.github/workflows/${name}.yml`);
    const uses = [...workflow.matchAll(/uses: (.+)/g)].map(([, action]) => action!).filter((action) =>
      !/^\.\//.test(action)
    );
    const steps = workflow.split(/^ {6}- /m);

    assert.ok(uses.length > 0 && commandsIn(workflow).length > 0);
    assert.deepEqual(uses.filter((action) => !/^[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(action)), []);
    assert.deepEqual(
      steps.filter((step) => step.includes("actions/checkout@") && !step.includes("persist-credentials: false")),
      [],
    );
    assert.deepEqual(commandsIn(workflow).filter((command) => command.includes("${{")), []);
  });
}

const CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 0.2.0\n\n- New\n\n## 0.1.0\n";

Deno.test("findObstacles() finds nothing if all versions are those of the tag", () => {
  assert.deepEqual(findObstacles("v0.2.0", CHANGELOG, { "deno.json": "0.2.0" }), []);
});

Deno.test("findObstacles() names what has another version, and changes that are under no version", () => {
  const changelog = CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- Forgotten\n");

  assert.deepEqual(findObstacles("v0.3.0", changelog, { "deno.json": "0.3.0", "src/model/version.ts": "0.2.0" }), [
    "The version in src/model/version.ts is 0.2.0, and that of the tag 0.3.0",
    "The first version in CHANGELOG.md is not 0.3.0",
    'CHANGELOG.md has changes under "Unreleased": move them to 0.3.0',
  ]);
});

Deno.test("findObstacles() names what a first version cannot have changed, and headings that occur twice", () => {
  const changelog = `${CHANGELOG}\n### Stores\n\n### Fixed\n\n### Stores\n`;

  assert.deepEqual(findObstacles("v0.2.0", changelog, {}), [
    'CHANGELOG.md has "Stores" of 0.1.0 twice',
    'CHANGELOG.md has "Fixed" in 0.1.0, which has no version before it',
  ]);
  assert.deepEqual(findObstacles("v0.2.0", `${CHANGELOG}\n## 0.1.0\n`, {}), ["CHANGELOG.md has 0.1.0 twice"]);
});

Deno.test("CHANGELOG.md says nothing of versions that nobody had, and has no heading twice", async () => {
  assert.deepEqual(findChangelogFaults(await read("CHANGELOG.md")), []);
});
