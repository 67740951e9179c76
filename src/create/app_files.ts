import { PACKAGE_VERSION } from "../model/version.ts";
import { DENO_FILES, NODE_FILES } from "./templates.ts";

/** What an app is made for. */
export type AppRuntime = "deno" | "node";

// The versions that this package is tested with.
const ZOD = "^4.6.7";
const TYPESCRIPT = "^6.0.3";
const NODE_TYPES = "^22.18.0";

/** The files of an app, by their paths. */
export function appFiles(name: string, runtime: AppRuntime): Map<string, string> {
  const [files, manifest] = runtime === "deno"
    ? [DENO_FILES, ["deno.json", denoManifest()] as const]
    : [NODE_FILES, ["package.json", nodeManifest(name)] as const];
  const named = Object.entries(files).map(([path, text]) => [path, text.replaceAll("my-app", name)] as const);
  const [path, content] = manifest;
  return new Map([...named, [path, `${JSON.stringify(content, null, 2)}\n`]]);
}

function denoManifest(): object {
  // With --allow-sys, the dashboard shows the name of the machine.
  const permissions = "--allow-net --allow-env --allow-sys=hostname --allow-read=. --allow-write=.";
  return {
    imports: {
      "@holdfast/jobs": `jsr:@holdfast/jobs@${PACKAGE_VERSION}`,
      "zod": `npm:zod@${ZOD}`,
    },
    tasks: {
      dev: `deno run --watch ${permissions} main.ts`,
      start: `deno run ${permissions} main.ts`,
      test: "deno test --allow-env",
    },
    fmt: { lineWidth: 120 },
  };
}

function nodeManifest(name: string): object {
  return {
    name,
    version: "0.1.0",
    private: true,
    type: "module",
    engines: { node: ">=22.18" },
    scripts: {
      dev: "node --watch main.ts",
      start: "node main.ts",
      test: "node --test",
      check: "tsc",
    },
    dependencies: { "@holdfast/jobs": PACKAGE_VERSION, "zod": ZOD },
    devDependencies: { "@types/node": NODE_TYPES, "typescript": TYPESCRIPT },
  };
}
