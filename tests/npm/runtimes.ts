import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";
import process from "node:process";
import { buildNpmPackage } from "../../tools/build_npm_package.ts";

/** A runtime that executes the programs. */
export interface Runtime {
  /** Its name and version. */
  name: "Node 22" | "Node 24" | "Bun";
  /** The path of the program. */
  program: string;
}

/** A folder in which the packed package is installed, as in somebody's project. */
export interface Installation extends AsyncDisposable {
  /** Its path: the programs are in it, with the paths that they have here. */
  readonly folder: string;
  /** The packed package. */
  readonly tarball: string;
  /** All runtimes of this machine. */
  readonly runtimes: readonly Runtime[];
}

const IS_WINDOWS = process.platform === "win32";
const SLOWEST_MS = 300_000;

/** Says why nothing can be installed; `null` if it can. */
export async function findObstacle(): Promise<string | null> {
  try {
    await npm(["--version"], ".");
    return null;
  } catch (error) {
    return `npm cannot be run: ${(error as Error).message}`;
  }
}

/**
 * Packs the package, and installs it with the runtimes and what the programs import.
 *
 * @param others More packages to install, such as `hono@4`.
 */
export async function install(others: readonly string[] = []): Promise<Installation> {
  const folder = await Deno.makeTempDir({ prefix: "holdfast_npm_" });
  const tarball = await buildNpmPackage(folder);
  const programs = [...Deno.readDirSync(pathOf("tests/npm/programs"))].map(({ name }) => `tests/npm/programs/${name}`);
  for (const name of programs) {
    await Deno.mkdir(dirname(join(folder, name)), { recursive: true });
    await Deno.copyFile(pathOf(name), join(folder, name));
  }
  await Deno.writeTextFile(join(folder, "package.json"), JSON.stringify({ type: "module", private: true }));
  const { platform, arch } = process;
  const nodePackage = `${platform === "darwin" && arch === "arm64" ? "node-bin" : "node"}-${
    IS_WINDOWS ? "win" : platform
  }-${arch}`;
  const bunPackage = `@oven/bun-${IS_WINDOWS ? "windows" : platform}-${arch === "arm64" ? "aarch64" : arch}`;
  // Nothing that is installed executes anything: the programs of the runtimes are in packages of their platforms.
  await npm([
    "install",
    "--ignore-scripts",
    "--no-audit",
    "--prefer-offline",
    "--no-fund",
    tarball,
    "pg@8",
    "postgres@3",
    "@opentelemetry/api@1",
    `node22@npm:${nodePackage}@22`,
    `node24@npm:${nodePackage}@24`,
    `bun@npm:${bunPackage}@1`,
    "zod@4",
    "typescript@6",
    "@types/node@22",
    ...others,
  ], folder);
  const at = (name: string) => join(folder, "node_modules", name, "bin", IS_WINDOWS ? `${name}.exe` : name);
  const nodeAt = (name: string) => join(folder, "node_modules", name, "bin", IS_WINDOWS ? "node.exe" : "node");
  return {
    folder,
    tarball,
    runtimes: [
      { name: "Node 22", program: nodeAt("node22") },
      { name: "Node 24", program: nodeAt("node24") },
      { name: "Bun", program: at("bun") },
    ],
    [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }),
  };
}

/**
 * Runs a program to its end.
 *
 * @returns What it has printed to stdout.
 * @throws {Error} It has failed: the message has what it has printed.
 */
export async function run(program: string, args: readonly string[], cwd: string): Promise<string> {
  const { DENO_COVERAGE_DIR: _left, NODE_OPTIONS: _options, ...env } = Deno.env.toObject();
  const { success, code, stdout, stderr } = await new Deno.Command(program, {
    args: [...args],
    cwd,
    clearEnv: true,
    env: { ...env, NO_COLOR: "1" },
    stdin: "null",
    signal: AbortSignal.timeout(SLOWEST_MS),
  }).output();
  const [out, error] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  if (!success) throw new Error(`${program} ${args.join(" ")} ended with ${code}: ${out}\n${error}`);
  return out!;
}

/** Runs npm, as {@linkcode run} does. */
export function npm(args: readonly string[], cwd: string): Promise<string> {
  return run(IS_WINDOWS ? "npm.cmd" : "npm", args, cwd);
}

/** The path of a file of this repository. */
export function pathOf(name: string): string {
  return fileURLToPath(new URL(`../../${name}`, import.meta.url));
}
