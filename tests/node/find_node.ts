import process from "node:process";

/** A Node that can run the tests. */
export interface Node {
  /** The path of the program. */
  path: string;
  /** Such as `v22.13.0`. */
  version: string;
}

const SLOWEST_DOWNLOAD_MS = 300_000;

// Where Node has this module without a flag (22.13 or later), it has everything else that the tests need.
const PROBE = `require("node:sqlite"); console.log(process.version, process.execPath)`;

/**
 * Finds a Node of version 22.13 or later: the one in the `PATH`, or else one from npm, which Deno keeps in its cache.
 *
 * @returns It, or why there is none.
 */
export async function findNode(): Promise<Node | { reason: string }> {
  const reasons: string[] = [];
  for (
    const command of [["node"], [Deno.execPath(), "x", "--yes", "--no-config", `npm:${packageName()}@22`]]
  ) {
    const found = await probe(command);
    if ("path" in found) return found;
    reasons.push(`${command.at(-1)}: ${found.reason}`);
  }
  return { reason: reasons.join("; ") };
}

/** The package that npm's `node` installs: the program for this kind of machine, and nothing that has to be run first. */
function packageName(): string {
  const { platform, arch } = process;
  const prefix = platform === "darwin" && arch === "arm64" ? "node-bin" : "node";
  return `${prefix}-${platform === "win32" ? "win" : platform}-${arch}`;
}

async function probe([program, ...args]: string[]): Promise<Node | { reason: string }> {
  try {
    const { success, stdout, stderr } = await new Deno.Command(program!, {
      args: [...args, "--eval", PROBE],
      env: { NODE_OPTIONS: "", NO_COLOR: "1" },
      signal: AbortSignal.timeout(SLOWEST_DOWNLOAD_MS),
    }).output();
    const decoder = new TextDecoder();
    const [, version, path] = /^(v\S+) (.+)$/m.exec(decoder.decode(stdout)) ?? [];
    if (success && version !== undefined && path !== undefined) return { version, path };
    return { reason: /^error.*$/im.exec(decoder.decode(stderr))?.[0] ?? "it does not run" };
  } catch (error) {
    return { reason: (error as Error).message }; // there is no such program
  }
}
