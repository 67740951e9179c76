import assert from "node:assert/strict";
import { join } from "node:path";
import { buildTemplates } from "../../src/create/build_templates.ts";
import { runCreate } from "../../src/create/run_create.ts";
import { PACKAGE_VERSION } from "../../src/model/version.ts";
import { aFolder } from "./a_folder.ts";

async function create(...args: string[]) {
  const told: string[] = [];
  const notes: string[] = [];
  const code = await runCreate(args, { print: (text) => void told.push(text), note: (text) => void notes.push(text) });
  return { code, told: told.join("\n"), notes: notes.join("\n") };
}

const namesIn = (folder: string) => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();

Deno.test("templates.ts is what the task makes of the files in templates/", async () => {
  const built = await buildTemplates();

  assert.equal(built, await Deno.readTextFile(new URL("../../src/create/templates.ts", import.meta.url)));
});

Deno.test("runCreate() makes an app for Deno that uses this version of the package, and says what to do next", async () => {
  await using folder = await aFolder();
  const app = join(folder.path, "shop");

  const { code, told } = await create(app);

  assert.equal(code, 0);
  assert.match(told, /^Made shop\. Next:[^]*deno task test/);
  assert.deepEqual(namesIn(app), [
    ".dockerignore",
    ".gitignore",
    "Dockerfile",
    "README.md",
    "auth.ts",
    "deno.json",
    "jobs.ts",
    "jobs_test.ts",
    "main.ts",
  ]);
  const { imports } = JSON.parse(await Deno.readTextFile(join(app, "deno.json")));
  assert.equal(imports["@holdfast/jobs"], `jsr:@holdfast/jobs@${PACKAGE_VERSION}`);
  assert.match(await Deno.readTextFile(join(app, "README.md")), /^# shop\n/);
  for (const name of namesIn(app)) assert.doesNotMatch(await Deno.readTextFile(join(app, name)), /my-app/, name);
});

Deno.test("runCreate() makes an app for Node with --node", async () => {
  await using folder = await aFolder();
  const app = join(folder.path, "shop");

  const { code, told } = await create("--node", app);

  assert.equal(code, 0);
  assert.match(told, /npm install\n[^]*npm test/);
  const { name, engines, dependencies } = JSON.parse(await Deno.readTextFile(join(app, "package.json")));
  assert.deepEqual([name, engines, dependencies["@holdfast/jobs"]], ["shop", { node: ">=22.18" }, PACKAGE_VERSION]);
  assert.ok(!namesIn(app).includes("deno.json"));
});

Deno.test("runCreate() makes an app in an empty folder, and none in one that has something in it", async () => {
  await using folder = await aFolder();
  const app = join(folder.path, "shop");
  await Deno.mkdir(app);

  const first = await create(app);
  await Deno.writeTextFile(join(app, "jobs.ts"), "mine");
  const second = await create(app);

  assert.deepEqual([first.code, second.code], [0, 1]);
  assert.match(second.notes, /^The folder ".*shop" is not empty: it has "[^"]+"\. Name a new folder$/);
  assert.equal(await Deno.readTextFile(join(app, "jobs.ts")), "mine");
});

Deno.test("runCreate() says that a file is in the way", async () => {
  await using folder = await aFolder();
  const app = join(folder.path, "shop");
  await Deno.writeTextFile(app, "");

  const { code, notes } = await create(app);

  assert.equal(code, 1);
  assert.match(notes, /^Cannot write the app to ".*shop": there is a file of that name$/);
});

for (const name of ["Shop", "2shop", "my_shop", "-", "shop-", "my--shop", "nul", "com1", "läden", "s".repeat(65)]) {
  Deno.test(`runCreate() refuses the name "${name}", and makes nothing`, async () => {
    await using folder = await aFolder();

    const { code, notes } = await create(join(folder.path, name));

    assert.equal(code, 2);
    assert.match(notes, /cannot be the name of an app: use lower-case letters, digits and dashes/);
    assert.deepEqual(namesIn(folder.path), []);
  });
}

for (
  const [args, message] of [
    [[], /Name the folder of the app/],
    [["one", "two"], /Name one folder, not 2: one two/],
    [["shop", "--bun"], /Unknown option '--bun'/],
  ] as const
) {
  Deno.test(`runCreate() refuses the arguments [${args}]`, async () => {
    const { code, notes } = await create(...args);

    assert.equal(code, 2);
    assert.match(notes, message);
  });
}

Deno.test("runCreate() prints its help", async () => {
  const { code, told } = await create("--help");

  assert.equal(code, 0);
  assert.match(told, /^deno run -A jsr:@holdfast\/jobs\/create FOLDER \[--node\]$/m);
});
