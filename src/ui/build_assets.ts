// deno task ui    copies the files of the dashboard into src/ui/assets.ts

import { createHash } from "node:crypto";
import { minify } from "terser";

const APP = new URL("./app/", import.meta.url);
const TARGET = new URL("./assets.ts", import.meta.url);
const SERVED = /\.(?:js|css|svg|html)$|\/LICENSES\.txt$/;

// Names that most files import: they compress better if they are the same everywhere.
const SHARED = ["html", "useState", "useEffect", "useData", "useNow", "post", "pageAt"];

/**
 * The text of `assets.ts`: the files of the dashboard as constants, each without its comments and unneeded spaces, with a
 * hash of all of them.
 */
export async function buildAssets(): Promise<string> {
  const paths = (await listFiles("")).filter((path) => SERVED.test(`/${path}`)).sort();
  const hash = createHash("sha256");
  const lines: string[] = [];
  for (const path of paths) {
    const text = await shorten(path, await Deno.readTextFile(new URL(path, APP)));
    hash.update(`${path}\0${text}\0`);
    lines.push(`  ${JSON.stringify(path)}: ${JSON.stringify(text)},\n`);
  }
  return `// Made by \`deno task ui\` from src/ui/app: change the files there.

/** Changes with any file. */
export const HASH = "${hash.digest("hex").slice(0, 16)}";

/** The files of the dashboard, by their paths. */
export const ASSETS: Readonly<Record<string, string>> = {
${lines.join("")}};
`;
}

async function shorten(path: string, text: string): Promise<string> {
  if (path.startsWith("vendor/")) return text; // short already, and its licence is to stay
  if (path.endsWith(".css")) {
    const short = text.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/\s+/g, " ");
    return short.replaceAll(/ ?([{};,]) ?/g, "$1").replaceAll(": ", ":").replaceAll(";}", "}").trim();
  }
  if (!path.endsWith(".js")) return text;
  const mangle = { module: true, reserved: SHARED };
  const { code } = await minify(text, {
    module: true,
    mangle,
    compress: { passes: 3, unsafe_arrows: true },
    ecma: 2020,
  });
  return shortenTemplates(code!); // or it has thrown
}

// Only templates have line breaks, which mean nothing to htm, nor does the indentation after them. To htm any closing tag
// closes the innermost element, and a value needs no quotes if it is a word.
function shortenTemplates(code: string): string {
  return code.replaceAll(/\s*\n\s*/g, "\n").replaceAll(/([>}])\n/g, "$1").replaceAll(/\n([<$>])/g, "$1")
    .replaceAll(/<\/(?:[a-z][a-z0-9]*|\/)>/g, "</>")
    .replaceAll(/<[a-z$][^<>]*/g, (tag) => tag.replaceAll(/="([\w-]+)"(?=\s|$)/g, "=$1"));
}

async function listFiles(folder: string): Promise<string[]> {
  const paths: string[] = [];
  for await (const { name, isDirectory } of Deno.readDir(new URL(folder || ".", APP))) {
    if (isDirectory) paths.push(...await listFiles(`${folder}${name}/`));
    else paths.push(`${folder}${name}`);
  }
  return paths;
}

if (import.meta.main) await Deno.writeTextFile(TARGET, await buildAssets());
