import { readFileSync, statSync, writeFileSync } from "node:fs";
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

const contents = readContents(readFileSync(join(DOCS, "index.md"), "utf8"));

export default defineConfig({
  title: "Holdfast",
  description: "Durable jobs for Deno: async functions whose steps are recorded, so that they survive a crash",
  lang: "en",
  srcDir: "../docs",
  outDir: "dist",
  // GitHub Pages serves a project under the name of its repository.
  base: HOLDFAST_DOCS_BASE ?? `/${repository.split("/").at(-1)}/`,
  lastUpdated: false,
  markdown: {
    anchor: { slugify: githubSlug },
    toc: { slugify: githubSlug },
    config: (markdown) =>
      markdown.core.ruler.push("links_out_of_docs", ({ env, tokens }) => linkToRepository(env, tokens)),
  },
  buildEnd: ({ outDir }) =>
    writeFileSync(join(outDir, "llms.txt"), toSiteLinks(readFileSync(join(ROOT, "llms.txt"), "utf8"))),
  themeConfig: {
    search: { provider: "local" },
    nav: contents.map(({ title, pages }) => ({ text: title, link: `/${pages[0]!.path}` })),
    sidebar: contents.map(({ title, pages }) => ({
      text: title,
      items: pages.map((page) => ({ text: page.title, link: `/${page.path}` })),
    })),
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
    if (!isFolder && !relative(DOCS, target).startsWith("..")) continue;
    const kind = isFolder ? "tree" : "blob";
    token.attrSet("href", `${repository}/${kind}/main/${relative(ROOT, target).replaceAll("\\", "/")}`);
    token.attrSet("target", "_blank");
  }
}

/** The links of `llms.txt` for the site: pages of `docs/` are beside it. */
function toSiteLinks(text: string): string {
  return text.replaceAll(/\]\(docs\/([^)]+)\.md\)/g, "]($1.html)").replaceAll(
    "](README.md)",
    `](${repository}#readme)`,
  );
}
