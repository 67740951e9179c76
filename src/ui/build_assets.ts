// deno task ui    copies the files of the dashboard into src/ui/assets.ts

import { createHash } from "node:crypto";
import { build, stop } from "esbuild";
import { minify } from "terser";

const APP = new URL("./app/", import.meta.url);
const TARGET = new URL("./assets.ts", import.meta.url);

/**
 * The text of `assets.ts`: the files of the dashboard as constants, without comments and unneeded spaces, with a hash of
 * all of them. The modules are one script, and the styles one sheet: names that no file exports are short.
 */
export async function buildAssets(): Promise<string> {
  const assets = {
    "app.css": shortenStyles(await readStyles()),
    "app.js": await shortenScript(await bundle()),
    "icon.svg": await read("icon.svg"),
    "index.html": await read("index.html"),
    "vendor/LICENSES.txt": await read("vendor/LICENSES.txt"),
  };
  const hash = createHash("sha256");
  const lines = Object.entries(assets).map(([path, text]) => {
    hash.update(`${path}\0${text}\0`);
    return `  ${JSON.stringify(path)}: ${JSON.stringify(text)},\n`;
  });
  return `// Made by \`deno task ui\` from src/ui/app: change the files there.

/** Changes with any file. */
export const HASH = "${hash.digest("hex").slice(0, 16)}";

/** The files of the dashboard, by their paths. */
export const ASSETS: Readonly<Record<string, string>> = {
${lines.join("")}};
`;
}

const read = (path: string) => Deno.readTextFile(new URL(path, APP));

/** The styles, in the order of the names of their files. */
async function readStyles(): Promise<string> {
  const names: string[] = [];
  for await (const { name } of Deno.readDir(new URL("css/", APP))) names.push(name);
  return (await Promise.all(names.sort().map((name) => read(`css/${name}`)))).join("");
}

function shortenStyles(text: string): string {
  const short = text.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/\s+/g, " ");
  return short.replaceAll(/ ?([{};,]) ?/g, "$1").replaceAll(": ", ":").replaceAll(";}", "}").trim();
}

/** All modules as one. */
async function bundle(): Promise<string> {
  const { outputFiles: [file] } = await build({
    entryPoints: [new URL("app.js", APP).pathname],
    bundle: true,
    charset: "utf8",
    format: "esm",
    legalComments: "none",
    write: false,
  });
  await stop(); // its process
  return file!.text; // one entry point is one file
}

async function shortenScript(text: string): Promise<string> {
  const { code } = await minify(text, { module: true, compress: { passes: 3, unsafe_arrows: true }, ecma: 2020 });
  return `/* With Preact and htm: see vendor/LICENSES.txt. */\n${shortenTemplates(code!)}`; // or it has thrown
}

// Only templates have line breaks, which mean nothing to htm, nor does the indentation after them. To htm any closing tag
// closes the innermost element, and a value needs no quotes if it is a word.
function shortenTemplates(code: string): string {
  return code.replaceAll(/\s*\n\s*/g, "\n").replaceAll(/([>}])\n/g, "$1").replaceAll(/\n([<$>])/g, "$1")
    .replaceAll(/<\/(?:[a-z][a-z0-9]*|\/)>/g, "</>")
    .replaceAll(/<[a-z$][^<>]*/g, (tag) => tag.replaceAll(/="([\w-]+)"(?=\s|$)/g, "=$1"));
}

if (import.meta.main) await Deno.writeTextFile(TARGET, await buildAssets());
