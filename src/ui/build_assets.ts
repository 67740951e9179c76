// deno task ui    copies the files of the dashboard into src/ui/assets.ts

import { createHash } from "node:crypto";
import { type Node, parse } from "acorn";
import { build, type Plugin, stop } from "esbuild";
import { minify } from "terser";
import htm from "./app/vendor/htm.js";

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
    plugins: [templates],
    write: false,
  });
  await stop(); // its process
  return file!.text; // one entry point is one file
}

// Templates become calls of Preact's function here, so that the page need not read them.
const templates: Plugin = {
  name: "templates",
  setup({ onLoad }) {
    onLoad(
      { filter: /core\/html\.js$/ },
      () => ({ contents: 'export { h as html } from "../vendor/preact.js";', resolveDir }),
    );
    onLoad({ filter: /\/(?:app|core\/\w+|pages\/\w+|parts\/\w+|run\/\w+)\.js$/ }, async ({ path }) => ({
      contents: withCalls(await Deno.readTextFile(path)),
    }));
  },
};
const resolveDir = new URL("core/", APP).pathname;

/** A module with calls in place of its templates. */
function withCalls(source: string): string {
  const write = (node: Node): string => {
    const found: Template[] = [];
    const find = (each: unknown): void => {
      if (Array.isArray(each)) return each.forEach(find);
      if (typeof each !== "object" || each === null) return;
      const isTemplate = "tag" in each && (each as Template).tag.name === "html";
      if (isTemplate) found.push(each as Template);
      else Object.values(each).forEach(find);
    };
    find(node);
    let [text, at] = ["", node.start];
    for (const template of found.sort((one, other) => one.start - other.start)) {
      text += source.slice(at, template.start) + toCall(template, write);
      at = template.end;
    }
    return text + source.slice(at, node.end);
  };
  return write(parse(source, { ecmaVersion: "latest", sourceType: "module" }));
}

/** A template as acorn describes it. */
interface Template extends Node {
  tag: { name?: string };
  quasi: { quasis: { value: { cooked: string } }[]; expressions: Node[] };
}

/** A template as a call: htm reads it, with each expression as an object whose one field says its place and its code. An
 * expression within a quoted value throws. */
function toCall({ quasi: { quasis, expressions } }: Template, write: (node: Node) => string): string {
  const codeOf = (value: unknown): string =>
    typeof value === "object" && value !== null ? `(${Object.values(value)[0]})` : JSON.stringify(value);
  const element = htm.bind<Record<string, string>>((type, props, ...children) => {
    const fields = Object.entries(props ?? {}).map(([name, value]) =>
      name.startsWith("...") ? `...(${value})` : `${JSON.stringify(name)}: ${codeOf(value)}`
    );
    return {
      call: `html(${
        [codeOf(type), props === null ? "null" : `{ ${fields.join(", ")} }`, ...children.map(codeOf)].join(", ")
      })`,
    };
  });
  const strings = Object.assign(quasis.map(({ value }) => value.cooked), { raw: [] });
  const elements = element(strings, ...expressions.map((each, n) => ({ __proto__: null, [`...${n}`]: write(each) })));
  return Array.isArray(elements) ? `[${elements.map(codeOf).join(", ")}]` : codeOf(elements);
}

async function shortenScript(text: string): Promise<string> {
  const { code } = await minify(text, { module: true, compress: { passes: 3, unsafe_arrows: true }, ecma: 2020 });
  return `/* With Preact: see vendor/LICENSES.txt. */\n${code}`;
}

if (import.meta.main) await Deno.writeTextFile(TARGET, await buildAssets());
