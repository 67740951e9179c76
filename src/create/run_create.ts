import { errorMessage } from "../values/unknown_values.ts";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { PACKAGE_VERSION } from "../model/version.ts";
import { DENO_FILES, NODE_FILES } from "./templates.ts";

/** Where {@linkcode runCreate} writes its messages. */
export interface CreateTerminal {
  /** Writes the result. */
  print(text: string): void;
  /** Writes why there is none. */
  note(text: string): void;
  /** How the command is called, for its help. Default: `deno run -A jsr:@holdfast/jobs/create`. */
  command?: string;
}

const describe = (command: string) =>
  `Makes a small app with Holdfast: a job, its test, a server with the dashboard, and a Dockerfile.

${command} FOLDER [--node]

FOLDER is new or empty. Its name becomes the name of the app: lower-case letters, digits and dashes.

  --node  makes an app for Node 22.18 or later instead of Deno
  --help  prints this

Exit code: 0 done; 1 the app cannot be made; 2 called in a wrong way.`;

/**
 * Makes an app, as the arguments of the command say.
 *
 * @returns The exit code: 0 done; 1 the app cannot be made; 2 called in a wrong way.
 */
export async function runCreate(args: readonly string[], terminal: CreateTerminal): Promise<0 | 1 | 2> {
  try {
    const { folder, runtime, wantsHelp } = parse(args);
    if (wantsHelp) {
      terminal.print(describe(terminal.command ?? "deno run -A jsr:@holdfast/jobs/create"));
      return 0;
    }
    const path = resolve(folder);
    const name = basename(path);
    checkAppName(name);
    await writeApp(path, appFiles(name, runtime));
    terminal.print(describeNextSteps(folder, name, runtime));
    return 0;
  } catch (error) {
    if (!(error instanceof CreateError)) throw error; // a mistake of this program
    terminal.note(error.message);
    return error.exitCode;
  }
}

function parse(args: readonly string[]): { folder: string; runtime: AppRuntime; wantsHelp: boolean } {
  const { values, positionals } = parseOptions(args);
  const [folder, ...others] = positionals;
  const wantsHelp = values.help === true;
  if (!wantsHelp && folder === undefined) {
    throw new CreateError("Name the folder of the app, such as my-app; --help says more", 2);
  }
  if (others.length > 0) {
    throw new CreateError(`Name one folder, not ${positionals.length}: ${positionals.join(" ")}`, 2);
  }
  return { folder: folder ?? "", runtime: values.node === true ? "node" : "deno", wantsHelp };
}

function parseOptions(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: { node: { type: "boolean" }, help: { type: "boolean", short: "h" } },
      allowPositionals: true,
    });
  } catch (error) {
    throw new CreateError(errorMessage(error), 2, { cause: error });
  }
}

function describeNextSteps(folder: string, name: string, runtime: AppRuntime): string {
  const commands = [
    ...(folder === "." ? [] : [[`cd ${/\s/.test(folder) ? `"${folder}"` : folder}`, ""]]),
    ...(runtime === "node" ? [["npm install", ""]] : []),
    [runtime === "node" ? "npm test" : "deno task test", "the tests of the job"],
    [runtime === "node" ? "npm run dev" : "deno task dev", "the server: http://127.0.0.1:8000/api/jobs/ui/"],
  ];
  const width = commands.reduce((widest, [command]) => Math.max(widest, command!.length), 0);
  const lines = commands.map(([command, about]) => `  ${command!.padEnd(width)}  ${about}`.trimEnd());
  return [`Made ${name}. Next:`, "", ...lines, "", "Its README.md says more."].join("\n");
}

/** An app cannot be made. */
class CreateError extends Error {
  override readonly name = "CreateError";
  /** The exit code of the command. */
  readonly exitCode: 1 | 2;

  /** Takes the message for the user. */
  constructor(message: string, exitCode: 1 | 2, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

const MAX_LENGTH = 64;
const NAME = /^[a-z][a-z0-9]*(?:-[a-z0-9]+)*$/;
// Windows has no files with these names: https://learn.microsoft.com/windows/win32/fileio/naming-a-file
const DEVICE = /^(?:con|prn|aux|nul|com[0-9]|lpt[0-9])$/;

/**
 * Checks the name of an app: it is the name of its folder, of its npm package and of its container image.
 *
 * @throws {CreateError} It is not allowed.
 */
function checkAppName(name: string): void {
  if (name.length <= MAX_LENGTH && NAME.test(name) && !DEVICE.test(name)) return;
  throw new CreateError(
    `"${name}" cannot be the name of an app: use lower-case letters, digits and dashes between them, such as my-app`,
    2,
  );
}

/**
 * Writes the files of an app into a folder, which it makes if there is none.
 *
 * @param files By their paths in the folder.
 * @throws {CreateError} The folder has something in it, is a file, or cannot be written to.
 */
async function writeApp(folder: string, files: ReadonlyMap<string, string>): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
    const [first] = await readdir(folder);
    if (first !== undefined) {
      throw new CreateError(`The folder "${folder}" is not empty: it has "${first}". Name a new folder`, 1);
    }
    // Nothing is overwritten, not even what another program writes at the same time.
    for (const [path, text] of files) await writeFile(join(folder, path), text, { flag: "wx" });
  } catch (error) {
    if (error instanceof CreateError) throw error;
    throw new CreateError(`Cannot write the app to "${folder}": ${reasonOf(error)}`, 1, { cause: error });
  }
}

function reasonOf(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (code === "EEXIST" || code === "ENOTDIR") return "there is a file of that name";
  return String(message ?? error);
}

/** What an app is made for. */
type AppRuntime = "deno" | "node";

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
