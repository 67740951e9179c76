// Every entry point, and every other module of the package, can be loaded.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = join("node_modules", "@holdfast", "jobs");
const { exports } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));

for (const entry of Object.keys(exports)) {
  const names = Object.keys(await import(`@holdfast/jobs${entry.slice(1)}`));
  assert.ok(names.length > 0, `${entry} exports nothing`);
}

const modules = readdirSync(join(folder, "src"), { encoding: "utf8", recursive: true })
  .filter((name) => name.endsWith(".js"));
for (const name of modules) await import(pathToFileURL(join(folder, "src", name)).href);

console.log(`${Object.keys(exports).length} entry points and ${modules.length} modules were loaded`);
