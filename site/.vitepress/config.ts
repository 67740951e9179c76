import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";
import { readContents } from "../contents.ts";
import { githubSlug } from "../github_slug.ts";

const HERE = fileURLToPath(import.meta.url);
const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const DOCS = join(ROOT, "docs");
const { GITHUB_REPOSITORY, GITHUB_SERVER_URL = "https://github.com", HOLDFAST_DOCS_BASE } = process.env;
const repository = `${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY ?? "holdfast/jobs"}`;

const base = HOLDFAST_DOCS_BASE ?? `/${repository.split("/").at(-1)}/`;
const contents = readContents(readFileSync(join(DOCS, "index.md"), "utf8"));

export default defineConfig({
  title: "Holdfast",
  description: "Durable jobs for Deno and Node: async functions whose steps are recorded, so that they survive a crash",
  lang: "en",
  srcDir: "../docs",
  outDir: "dist",
  // GitHub Pages serves a project under the name of its repository.
  base,
  head: [["link", { rel: "icon", type: "image/svg+xml", href: `${base}icon.svg` }]],
  // Decisions are for those who change the code: they are read in the repository, and not found by the search.
  srcExclude: ["adr/**"],
  rewrites: { "home.md": "index.md", "index.md": "contents.md" },
  ignoreDeadLinks: [/\/api\/index$/],
  lastUpdated: false,
  markdown: {
    anchor: { slugify: githubSlug },
    toc: { slugify: githubSlug },
    config: (markdown) => {
      markdown.core.ruler.push("links_out_of_docs", ({ env, tokens }) => linkToRepository(env, tokens));
      markdown.core.ruler.push("pictures", ({ tokens }) => showBothVariants(tokens));
    },
  },
  buildEnd: ({ outDir }) => {
    copyFileSync(join(ROOT, "src/ui/app/icon.svg"), join(outDir, "icon.svg"));
    addTexts(outDir);
    addReference(outDir);
  },
  themeConfig: {
    search: { provider: "local" },
    nav: [
      { text: "Quick start", link: "/guides/quick_start" },
      { text: "All pages", link: "/contents" },
      { text: "API", link: `${base}api/index.html`, target: "_self" },
    ],
    sidebar: contents.map(({ title, pages }) => ({
      text: title,
      items: pages.map((page) => ({ text: page.title, link: `/${page.path}` })),
    })),
    editLink: { pattern: `${repository}/edit/main/docs/:path`, text: "Edit this page" },
    outline: { level: [2, 3] },
    socialLinks: [{ icon: "github", link: repository }],
  },
  vite: {
    plugins: [{
      // Pages are outside of this folder, so they do not find the packages beside it.
      name: "packages-of-the-site",
      enforce: "pre",
      resolveId(id, importer, options) {
        const isOfPage = importer !== undefined && !relative(DOCS, importer).startsWith("..");
        return isOfPage && /^vue(\/|$)/.test(id) ? this.resolve(id, HERE, { ...options, skipSelf: true }) : null;
      },
    }],
  },
});

interface Token {
  type: string;
  children: Token[] | null;
  attrGet(name: string): string | null;
  attrSet(name: string, value: string): void;
}

/** Links that lead out of `docs/`, such as to an example, and those to folders, lead to the repository. */
function linkToRepository(env: { path?: string }, tokens: readonly Token[]): void {
  for (const token of tokens) {
    if (token.children !== null) linkToRepository(env, token.children);
    const href = token.type === "link_open" ? token.attrGet("href") : null;
    if (href === null || /^[a-z]+:|^#|^\//.test(href) || env.path === undefined) continue;
    const target = join(dirname(env.path), href.split("#")[0]!);
    const isFolder = statSync(target).isDirectory();
    if (!isFolder && /^(?!\.\.|adr\b|.*\.json$)/.test(relative(DOCS, target))) continue;
    const kind = isFolder ? "tree" : "blob";
    token.attrSet("href", `${repository}/${kind}/main/${relative(ROOT, target).replaceAll("\\", "/")}`);
    token.attrSet("target", "_blank");
  }
}

/** Writes a picture in two variants as two images: the theme of the page, which the reader can switch, shows one. */
function showBothVariants(tokens: readonly { type: string; content: string }[]): void {
  for (const token of tokens) {
    if (token.type !== "html_block" || !token.content.includes("<picture>")) continue;
    const dark = /srcset="([^"]+)"/.exec(token.content)![1]!; // a picture has one
    const light = /<img src="[^"]+"[^>]*>/.exec(token.content)![0]; // and an image
    const other = light.replace(/src="[^"]+"/, `src="${dark}"`).replace("<img", '<img class="only-dark"');
    token.content = `${light.replace("<img", '<img class="only-light"')}\n${other}\n`;
  }
}

/** Adds each page as Markdown, `llms.txt`, and `llms-full.txt`: the pages that it names, in its order. */
function addTexts(outDir: string): void {
  for (const path of readdirSync(DOCS, { encoding: "utf8", recursive: true })) {
    if (!path.endsWith(".md") || path.startsWith("adr")) continue;
    mkdirSync(dirname(join(outDir, path)), { recursive: true });
    copyFileSync(join(DOCS, path), join(outDir, path === "index.md" ? "contents.md" : path));
  }
  const list = readFileSync(join(ROOT, "llms.txt"), "utf8");
  writeFileSync(join(outDir, "llms.txt"), toSiteLinks(list));
  const paths = [...list.matchAll(/\]\(([^)]+\.md)\)/g)].map(([, path]) => path!);
  const pages = paths.map((path) => `<!-- ${path} -->\n\n${readFileSync(join(ROOT, path), "utf8")}`);
  writeFileSync(join(outDir, "llms-full.txt"), pages.join("\n"));
}

/** Adds the reference of all exported names, as `deno doc` makes it. */
function addReference(outDir: string): void {
  const { exports } = JSON.parse(readFileSync(join(ROOT, "deno.json"), "utf8")) as { exports: Record<string, string> };
  const args = ["doc", "--html", "--name=@holdfast/jobs", `--output=${join(outDir, "api")}`, ...Object.values(exports)];
  const { status, stderr } = spawnSync(process.execPath, args, { cwd: ROOT, encoding: "utf8" });
  if (status !== 0) throw new Error(`deno doc failed: ${stderr}`);
}

/** The links of `llms.txt` for the site: pages of `docs/` are beside it, as Markdown. */
function toSiteLinks(text: string): string {
  return text.replaceAll("](docs/", "](").replaceAll("](README.md)", `](${repository}#readme)`);
}
