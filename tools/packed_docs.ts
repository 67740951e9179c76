// deno run -A tools/packed_docs.ts owner/name    makes the documents of this folder those of a package, before it is published

import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

/** The paths of the files that `publish` of deno.json puts into a package, from the root, sorted. */
export function packedFiles(root: string = ROOT): string[] {
  const { include, exclude } = JSON.parse(readFileSync(join(root, "deno.json"), "utf8")).publish as {
    include: string[];
    exclude: string[];
  };
  const files = include.flatMap((path) => {
    if (!existsSync(join(root, path)) || !statSync(join(root, path)).isDirectory()) return [path];
    return readdirSync(join(root, path), { encoding: "utf8", recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) =>
        posix.relative(root.replaceAll("\\", "/"), join(parentPath, name).replaceAll("\\", "/"))
      );
  });
  return files.filter((file) => !exclude.some((path) => file === path || file.startsWith(`${path}/`))).sort();
}

const LINK = /(\]\(|\b(?:src|srcset|href)=")([^()\s"]+)/g;

/**
 * A document as a package has it: links to files that the package does not have lead to the repository.
 *
 * @param path Its path from the root of the package.
 * @param packed The files of the package.
 * @param repository The repository on GitHub, as `owner/name`.
 */
export function toPackedText(path: string, text: string, packed: ReadonlySet<string>, repository: string): string {
  return outsideOfCode(text, (prose) =>
    prose.replaceAll(LINK, (whole, before: string, target: string) => {
      if (/^[a-z]+:|^#/.test(target)) return whole;
      const file = posix.join(posix.dirname(path), target.split("#")[0]!).replace(/\/$/, "");
      const isInside = packed.has(file) || [...packed].some((other) => other.startsWith(`${file}/`));
      if (isInside) return whole;
      const isImage = /\.(?:png|svg)$/.test(file);
      const [, anchor] = target.split("#");
      const url = `https://github.com/${repository}/${isImage ? "raw" : "blob"}/main/${file}`;
      return `${before}${url}${anchor === undefined ? "" : `#${anchor}`}`;
    }));
}

/** Changes what is neither in a block nor in a span of code. */
function outsideOfCode(text: string, change: (prose: string) => string): string {
  return text.split(/(^ *```[^]*?^ *```$|`[^`\n]+`)/m).map((part, n) => n % 2 === 1 ? part : change(part)).join("");
}

/** Whether a file is a document with links. */
export function isDocument(path: string): boolean {
  return path.endsWith(".md") || path === "llms.txt";
}

if (import.meta.main) {
  const [repository] = Deno.args;
  if (repository === undefined) throw new TypeError("Which repository? Give it as owner/name");
  const packed = new Set(packedFiles());
  for (const path of [...packed].filter(isDocument)) {
    const text = readFileSync(join(ROOT, path), "utf8");
    writeFileSync(join(ROOT, path), toPackedText(path, text, packed, repository));
  }
}
