// deno task templates    copies the files of templates/ into src/create/templates.ts

const SOURCE = new URL("../../templates/", import.meta.url);
const TARGET = new URL("./templates.ts", import.meta.url);

/** The files of an app that both runtimes have: their paths in the app, and in `templates/`. */
const SHARED = {
  ".dockerignore": "dot_dockerignore",
  ".gitignore": "dot_gitignore",
  "auth.ts": "auth.ts",
  "jobs.ts": "jobs.ts",
};
const DENO = {
  ...SHARED,
  "Dockerfile": "deno_Dockerfile",
  "README.md": "deno_README.md",
  "jobs_test.ts": "deno_jobs_test.ts",
  "main.ts": "deno_main.ts",
};
const NODE = {
  ...SHARED,
  "Dockerfile": "node_Dockerfile",
  "README.md": "node_README.md",
  "jobs_test.ts": "node_jobs_test.ts",
  "main.ts": "node_main.ts",
  "tsconfig.json": "node_tsconfig.json",
};

/**
 * The text of `templates.ts`. An app is made from strings, since a module that is loaded from a registry cannot read the
 * files that lie beside it.
 */
export async function buildTemplates(): Promise<string> {
  return `// Made by \`deno task templates\` from the files of templates/: change them there.

/** The files of an app for Deno, by their paths; \`my-app\` stands for its name. */
export const DENO_FILES: Readonly<Record<string, string>> = ${await describe(DENO)};

/** The files of an app for Node, by their paths; \`my-app\` stands for its name. */
export const NODE_FILES: Readonly<Record<string, string>> = ${await describe(NODE)};
`;
}

async function describe(files: Readonly<Record<string, string>>): Promise<string> {
  const lines = await Promise.all(
    Object.entries(files).map(async ([path, source]) => {
      const text = (await Deno.readTextFile(new URL(source, SOURCE))).replaceAll("\r\n", "\n");
      return `  ${JSON.stringify(path)}: ${JSON.stringify(text)},\n`;
    }),
  );
  return `{\n${lines.join("")}}`;
}

if (import.meta.main) await Deno.writeTextFile(TARGET, await buildTemplates());
