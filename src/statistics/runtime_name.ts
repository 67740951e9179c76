import process from "node:process";

/** The runtime of this process and its version, such as `deno 2.9.6`. */
export function runtimeName(): string {
  const { deno, bun, node } = process.versions as { [runtime: string]: string | undefined };
  if (deno !== undefined) return `deno ${deno}`;
  return bun !== undefined ? `bun ${bun}` : `node ${node}`;
}
