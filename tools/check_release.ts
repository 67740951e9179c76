// deno run -A tools/check_release.ts v0.1.0    checks that this checkout can be published under this tag

import { PACKAGE_VERSION } from "../src/version.ts";

/**
 * What keeps a checkout from being published under a tag.
 *
 * @param changelog The text of CHANGELOG.md.
 * @param versions The versions that have to be that of the tag, by the files that say them.
 */
export function findObstacles(tag: string, changelog: string, versions: Readonly<Record<string, string>>): string[] {
  const expected = tag.replace(/^v/, "");
  const obstacles = Object.entries(versions).filter(([, version]) => version !== expected)
    .map(([file, version]) => `The version in ${file} is ${version}, and that of the tag ${expected}`);
  const [, section] = changelog.split(/^## (?=\d)/m);
  if (section?.split("\n")[0] !== expected) obstacles.push(`The first version in CHANGELOG.md is not ${expected}`);
  const unreleased = /^## Unreleased\n([^]*?)(?=^## |$(?![^]))/m.exec(changelog)?.[1] ?? "";
  if (unreleased.trim() !== "") obstacles.push(`CHANGELOG.md has changes under "Unreleased": move them to ${expected}`);
  return obstacles;
}

if (import.meta.main) {
  const read = (file: string) => Deno.readTextFile(new URL(`../${file}`, import.meta.url));
  const { version } = JSON.parse(await read("deno.json"));
  const versions = { "deno.json": version, "src/version.ts": PACKAGE_VERSION };
  const obstacles = findObstacles(Deno.args[0] ?? "", await read("CHANGELOG.md"), versions);
  for (const obstacle of obstacles) console.error(obstacle);
  if (obstacles.length > 0) Deno.exit(1);
}
