// deno run -A tools/check_release.ts v0.1.0    checks that this checkout can be published under this tag

import { PACKAGE_VERSION } from "../src/model/version.ts";

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
  return [...obstacles, ...findChangelogFaults(changelog)];
}

// What only an earlier version can have had.
const OF_EARLIER = ["Changed", "Deprecated", "Fixed", "Removed"];

/**
 * What CHANGELOG.md says of versions that nobody had, and headings that occur twice: of two versions, or of two parts of
 * one. A merge can bring back what was removed.
 */
export function findChangelogFaults(changelog: string): string[] {
  const versions = changelog.split(/^## /m).slice(1);
  const headings = versions.map((version) => ({
    version: version.split("\n")[0]!,
    parts: [...version.matchAll(/^### (.+)$/gm)].map(([, part]) => part!),
  }));
  const twice = (names: string[]) => new Set(names.filter((name, at) => names.indexOf(name) !== at));
  return [
    ...[...twice(headings.map(({ version }) => version))].map((version) => `CHANGELOG.md has ${version} twice`),
    ...headings.flatMap(({ version, parts }) =>
      [...twice(parts)].map((part) => `CHANGELOG.md has "${part}" of ${version} twice`)
    ),
    ...(headings.at(-1)?.parts ?? []).filter((part) => OF_EARLIER.includes(part))
      .map((part) => `CHANGELOG.md has "${part}" in ${headings.at(-1)!.version}, which has no version before it`),
  ];
}

if (import.meta.main) {
  const read = (file: string) => Deno.readTextFile(new URL(`../${file}`, import.meta.url));
  const { version } = JSON.parse(await read("deno.json"));
  const versions = { "deno.json": version, "src/model/version.ts": PACKAGE_VERSION };
  const obstacles = findObstacles(Deno.args[0] ?? "", await read("CHANGELOG.md"), versions);
  for (const obstacle of obstacles) console.error(obstacle);
  if (obstacles.length > 0) Deno.exit(1);
}
