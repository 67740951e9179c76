import assert from "node:assert/strict";
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isDocument, packedFiles, toPackedText } from "../../tools/packed_docs.ts";
import { type CodeBlock, readPage, writeModules } from "../docs/pages.ts";
import { bundle } from "../node/bundle.ts";
import { inTime } from "../processes/deadline.ts";
import { TextLineStream } from "../processes/text_line_stream.ts";
import { PACKAGE_VERSION } from "../../src/model/version.ts";
import { compactSql, FUNCTIONS } from "../../src/stores/postgres/sql/functions.ts";
import { findObstacle, install, type Installation, npm, pathOf, run } from "./runtimes.ts";

const FEWEST_CASES = 700;

const obstacle = await findObstacle();
if (obstacle !== null) console.log(`The npm package is not tested: ${obstacle}`);

let installation: Installation;

function test(name: string, body: () => Promise<void>): void {
  Deno.test({ name, ignore: obstacle !== null, fn: body });
}

Deno.test.beforeAll(async () => {
  if (obstacle === null) installation = await install(["esbuild@0.28", "publint@0.3", "@arethetypeswrong/cli@0.18"]);
});
Deno.test.afterAll(async () => {
  if (obstacle === null) await installation[Symbol.asyncDispose]();
});

test("the npm package says what it is, and has types of every entry point", async () => {
  const content = join(installation.folder, "node_modules", "@holdfast", "jobs");
  const manifest = JSON.parse(await Deno.readTextFile(join(content, "package.json")));
  const { exports } = JSON.parse(await Deno.readTextFile(pathOf("deno.json")));

  assert.deepEqual([manifest.name, manifest.version, manifest.license, manifest.type], [
    "@holdfast/jobs",
    PACKAGE_VERSION,
    "MIT",
    "module",
  ]);
  assert.deepEqual(manifest.engines, { node: ">=22.13" });
  assert.deepEqual(manifest.dependencies, { "@cfworker/json-schema": "^4.1.1", croner: "11.0.1", zod: "^4.6.7" });
  assert.deepEqual(manifest.peerDependencies, { "@opentelemetry/api": "^1.9.0", pg: "^8.23.0", postgres: "^3.4.9" });
  assert.deepEqual(
    Object.values(manifest.peerDependenciesMeta),
    Array(3).fill({ optional: true }),
  );
  assert.ok(manifest.description.length > 20);
  assert.deepEqual(Object.keys(manifest.exports), Object.keys(exports));
  for (const { types } of Object.values<{ types: string }>(manifest.exports)) await Deno.stat(join(content, types));
  for (const name of ["README.md", "LICENSE", "CHANGELOG.md", "llms.txt", "skills/holdfast/SKILL.md"]) {
    await Deno.stat(join(content, name));
  }
});

test("the npm package has the documents of the repository, the skill, and a README for Node with absolute links", async () => {
  const content = join(installation.folder, "node_modules", "@holdfast", "jobs");
  const packed = new Set(packedFiles());
  const documents = [...packed].filter((path) => isDocument(path) && path !== "README.md");

  assert.ok(documents.includes("skills/holdfast/SKILL.md") && documents.length > 40, `${documents.length}`);
  for (const path of documents) {
    const expected = toPackedText(path, await Deno.readTextFile(pathOf(path)), packed, "holdfast/jobs");
    assert.equal(await Deno.readTextFile(join(content, path)), expected, path);
  }
  const contents = await Array.fromAsync(Deno.readDir(content), ({ name }) => name);
  assert.deepEqual(
    contents.filter((name) => name !== "node_modules").sort(),
    [
      "CHANGELOG.md",
      "LICENSE",
      "README.md",
      "bin",
      "docs",
      "llms.txt",
      "mod.d.ts",
      "mod.js",
      "package.json",
      "skills",
      "src",
    ],
  );
  const readme = await Deno.readTextFile(join(content, "README.md"));
  const links = [...readme.matchAll(/\]\(([^)]+)\)/g)].map(([, link]) => link!);
  assert.ok(links.length > 10);
  for (const link of links) {
    const path = /^https:\/\/github\.com\/holdfast\/jobs\/blob\/main\/(.+)$/.exec(link)?.[1];
    await Deno.stat(pathOf(path ?? `no path in ${link}`));
  }
  assert.doesNotMatch(readme, /\bdeno (?:run|task|add)\b/);
});

test("the npm package has the SQL of the stores without comments, and migrate() takes its functions for the same", async () => {
  const packed = join(installation.folder, "node_modules", "@holdfast", "jobs", "src", "stores", "postgres", "sql");
  const { FUNCTIONS: compact } = await import(pathToFileURL(join(packed, "functions.js")).href);

  assert.ok(compact.length < FUNCTIONS.length * 0.9, `${compact.length}`);
  assert.equal(compactSql(compact), compactSql(FUNCTIONS));
});

test("each block of TypeScript in the packed documents compiles against the packed package", async () => {
  const folder = await Deno.makeTempDir();
  const { imports, compilerOptions } = JSON.parse(await Deno.readTextFile(pathOf("deno.json")));
  const mapped = Object.entries<string>(imports).filter(([, target]) => !target.startsWith("jsr:")).map((
    [name, target],
  ) => [
    name,
    target.startsWith("./") ? name.replace("@holdfast/jobs", `npm:@holdfast/jobs@${PACKAGE_VERSION}`) : target,
  ]);
  const configuration = {
    imports: Object.fromEntries(mapped),
    compilerOptions,
    links: ["./package"],
    nodeModulesDir: "auto",
  };
  try {
    await run("tar", ["-xzf", installation.tarball, "-C", folder], folder);
    await Deno.writeTextFile(join(folder, "deno.json"), JSON.stringify(configuration));
    const places: string[] = [];
    const modules: string[] = [];
    for (const path of packedFiles().filter(isDocument)) {
      const { blocks } = readPage(path, await Deno.readTextFile(join(folder, "package", path)));
      for (const block of blocks.filter(({ info }: CodeBlock) => info === "ts" || info === "ts ignore")) {
        places.push(`${modules.length}: ${path}:${block.line}`);
        modules.push(writeModules(join(folder, "blocks", `${modules.length}`), block));
      }
    }

    const { success, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["check", "--quiet", "--no-lock", ...modules],
      cwd: folder,
      env: { NO_COLOR: "1" },
    }).output();

    assert.ok(modules.length > 80, `${modules.length}`);
    assert.ok(success, `${new TextDecoder().decode(stderr)}\n${places.join("\n")}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

test("the program of the README of the npm package survives a kill on Node", async () => {
  const { folder, runtimes } = installation;
  const page = readPage(
    "README.md",
    await Deno.readTextFile(join(folder, "node_modules", "@holdfast", "jobs", "README.md")),
  );
  const program = page.blocks.find(({ info }) => info === "ts ignore")!.code; // it has one
  const app = await Deno.makeTempDir({ dir: folder });
  await Deno.writeTextFile(join(app, "main.ts"), program.replace("port: 8000", "port: 0").replace("1_000", "50"));
  const rows: string[] = [];
  const start = () =>
    new Deno.Command(runtimes.find(({ name }) => name === "Node 24")!.program, {
      args: ["main.ts"],
      cwd: app,
      env: { NODE_OPTIONS: "" },
      stdout: "piped",
      stderr: "null",
    }).spawn();
  const readUntil = async (server: Deno.ChildProcess, count: number) => {
    for await (const line of server.stdout.pipeThrough(new TextLineStream())) {
      if (line.includes(", row ")) rows.push(line);
      if (new Set(rows).size >= count) break;
    }
    server.kill("SIGKILL");
    await server.status;
  };

  await inTime(readUntil(start(), 5), "the first process was to insert five rows");
  await inTime(readUntil(start(), 20), "the second process was to insert the rest");

  assert.equal(new Set(rows).size, 20); // the row at which the first was killed has the same key both times
  assert.ok(rows.length <= 21, `${rows.length} rows`);
});

test("the npm package names no folder of the machine that made it", async () => {
  const content = join(installation.folder, "node_modules", "@holdfast", "jobs");
  const root = pathOf("");

  for (const name of ["mod.js", "mod.d.ts", "src/http/handler.js", "src/stores/sqlite/sqlite_store.js"]) {
    const text = await Deno.readTextFile(join(content, name));
    assert.ok(!text.includes(root) && !text.includes("sourceMappingURL=data:application/json"), name);
  }
});

test("publint and attw find nothing wrong with the npm package", async () => {
  const { folder, tarball } = installation;
  const tool = async (path: string, args: string[]) => {
    const node = installation.runtimes.find(({ name }) => name === "Node 24")!; // it was installed
    return await run(node.program, [join("node_modules", path), tarball, ...args], folder);
  };

  assert.match(await tool("publint/src/cli.js", ["--strict"]), /All good!/);
  await tool("@arethetypeswrong/cli/dist/index.js", ["--profile", "esm-only"]); // it fails if something is wrong
});

/** What is imported, and how many bytes a bundler makes of it at most. */
const BUNDLES: readonly [entry: string, names: string, most: number][] = [
  ["@holdfast/jobs", "defineJob", 11_500],
  ["@holdfast/jobs", "createEngine, MemoryStore", 382_000],
  ["@holdfast/jobs", "createEngine, createHandler, SqliteStore", 655_000],
  ["@holdfast/jobs/client", "createClient", 6_500], // bundle_test.ts of the client says what they are for
  ["@holdfast/jobs/postgres", "PostgresStore", 312_000],
];

for (const [entry, names, most] of BUNDLES) {
  test(`a bundle of ${names} has at most ${most} bytes`, async () => {
    const { folder } = installation;
    const source = join(folder, `bundled_${names.replaceAll(", ", "_")}.mjs`);
    await Deno.writeTextFile(source, `export { ${names} } from "${entry}";`);
    const external = ["pg", "postgres", "@opentelemetry/api"].map((name) => `--external:${name}`);
    const options = ["--bundle", "--minify", "--format=esm", "--platform=node", "--log-level=error", ...external];
    const esbuild = join(folder, "node_modules", "esbuild", "bin", "esbuild");

    const code = await run(installation.runtimes[0]!.program, [esbuild, source, ...options], folder);

    const bytes = new TextEncoder().encode(code).length;
    assert.ok(bytes <= most, `${bytes} bytes`);
  });
}

test("the npm package needs none of its optional packages, and says which one a store needs", async () => {
  const { folder, runtimes } = installation;
  const bare = await Deno.makeTempDir({ prefix: "holdfast_npm_" });
  for (const name of ["@holdfast/jobs", "@cfworker/json-schema", "croner", "zod"]) {
    await cp(join(folder, "node_modules", name), join(bare, "node_modules", name), { recursive: true });
  }
  await Deno.writeTextFile(
    join(bare, "program.mjs"),
    `import { createEngine, MemoryStore } from "@holdfast/jobs";
     import { PostgresStore } from "@holdfast/jobs/postgres";
     createEngine({ store: new MemoryStore(), jobs: {} });
     await PostgresStore.open("postgres://localhost/jobs").catch(({ message }) => console.log(message));`,
  );

  const told = await run(runtimes[0]!.program, ["program.mjs"], bare);

  await Deno.remove(bare, { recursive: true });
  assert.equal(told.trim(), 'PostgresStore.open() needs the package "pg": npm install pg');
});

test("SqliteStore.open() says which versions have node:sqlite, where there is none", async () => {
  const { folder, runtimes: [node] } = installation;
  const program = `import { SqliteStore } from "@holdfast/jobs";
    await SqliteStore.open("jobs.db").catch(({ message }) => console.log(message));`;

  const told = await run(
    node!.program,
    ["--no-experimental-sqlite", "--input-type=module", "--eval", program],
    folder,
  );

  assert.match(told, /this runtime has no node:sqlite. It needs Node 22\.13/);
});

for (const name of ["Node 22", "Node 24", "Bun"]) {
  for (
    const [program, expected] of [
      ["entry_points.ts", /^\d+ entry points and \d{3} modules were loaded$/m],
      ["stores.ts", /^stores pass$/m],
      ["service.ts", /^the service passes$/m],
    ] as const
  ) {
    test(`${program} passes on ${name}, with the npm package`, async () => {
      const runtime = installation.runtimes.find((one) => one.name === name)!; // it was installed

      const told = await run(runtime.program, [`tests/npm/programs/${program}`], installation.folder);

      assert.match(told, expected);
    });
  }
}

test("SqliteStore keeps the store contract on bun:sqlite", async () => {
  const { folder, runtimes } = installation;
  const bun = runtimes.find(({ name }) => name === "Bun")!; // it was installed
  const modules = ["deno_test_anywhere.ts", "bun_sqlite.ts"].map((name) =>
    new URL(`contract/${name}`, import.meta.url)
  );

  const told = await run(bun.program, [await bundle(modules, folder)], folder);

  const [, passed] = /^(\d+) passed, 0 failed$/m.exec(told) ?? assert.fail(told);
  assert.ok(Number(passed) >= FEWEST_CASES, `${passed} cases passed`);
});

for (const [module, moduleResolution] of [["nodenext", "nodenext"], ["esnext", "bundler"]] as const) {
  test(`tsc accepts the types of the npm package with moduleResolution ${moduleResolution}`, async () => {
    const { folder, runtimes } = installation;
    const tsc = join(folder, "node_modules", "typescript", "bin", "tsc");
    // Without the types of a browser.
    const libraries = ["--target", "es2023", "--lib", "es2023", "--types", "node"];
    const options = ["--noEmit", "--strict", "--skipLibCheck", "false", ...libraries];

    await run(runtimes[0]!.program, [
      tsc,
      ...options,
      "--module",
      module,
      "--moduleResolution",
      moduleResolution,
      "tests/npm/programs/types.ts",
    ], folder);
  });
}

test("the commands of the npm package run on Node", async () => {
  const { folder, runtimes: [node] } = installation;
  const bin = (name: string) => join("node_modules", "@holdfast", "jobs", "bin", `${name}.js`);

  assert.match(await run(node!.program, [bin("holdfast"), "--help"], folder), /holdfast COMMAND --store STORE/);
  assert.match(await run(node!.program, [bin("holdfast-replay"), "--help"], folder), /^holdfast-replay --jobs/m);
  assert.match(
    await run(node!.program, [bin("holdfast-create"), "--help"], folder),
    /^holdfast-create FOLDER \[--node\]/m,
  );
});

test("the app for Node passes its test and its type check, and serves its dashboard", async () => {
  const { folder, tarball, runtimes: [node] } = installation;
  const app = join(folder, "shop");
  await run(
    node!.program,
    [join("node_modules", "@holdfast", "jobs", "bin", "holdfast-create.js"), "shop", "--node"],
    folder,
  );
  const manifest = JSON.parse(await Deno.readTextFile(join(app, "package.json")));
  manifest.dependencies["@holdfast/jobs"] = `file:${tarball}`;
  await Deno.writeTextFile(join(app, "package.json"), JSON.stringify(manifest));
  await npm(["install", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"], app);

  const told = await run(node!.program, ["--test"], app);
  await run(node!.program, [join("node_modules", "typescript", "bin", "tsc")], app);

  assert.match(told, /^# pass 3$/m);
  const { DENO_COVERAGE_DIR: _left, ...env } = Deno.env.toObject();
  const server = new Deno.Command(node!.program, {
    args: ["main.ts"],
    cwd: app,
    clearEnv: true,
    env: { ...env, PORT: "0", HOST: "", TOKEN: "", NODE_OPTIONS: "" },
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const lines = server.stdout.pipeThrough(new TextLineStream()).getReader();
  try {
    const { value: line = "" } = await inTime(lines.read(), "the server was to listen");
    const response = await fetch(line.replace("Dashboard: ", ""));
    assert.match(await response.text(), /<!doctype html>/i);
  } finally {
    server.kill("SIGKILL");
    await Promise.all([server.status, lines.cancel()]);
  }
});
