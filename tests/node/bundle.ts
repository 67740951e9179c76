import { fileURLToPath } from "node:url";

const CONFIG = fileURLToPath(new URL("../../deno.json", import.meta.url));
const ESBUILD = "npm:esbuild@0.28.2";
const SLOWEST_DOWNLOAD_MS = 300_000;

/**
 * Writes modules, with all that they import, as one module that Node 22 understands.
 *
 * @param folder Exists, and is for this alone.
 * @returns The path of the module.
 */
export async function bundle(modules: readonly URL[], folder: string): Promise<string> {
  const entry = `${folder}/entry.ts`;
  const bundled = `${folder}/bundled.js`;
  const lowered = `${folder}/lowered.mjs`;
  await Deno.writeTextFile(entry, modules.map(({ href }) => `import ${JSON.stringify(href)};\n`).join(""));
  await runDeno(["bundle", "--config", CONFIG, "--platform", "deno", "--sourcemap", "inline", "-o", bundled, entry]);
  // `deno bundle` leaves `await using` as it is, which Node has from version 24 on.
  await runDeno(
    ["run", "-A", "--no-lock", ESBUILD, bundled, "--target=node22", "--sourcemap=inline", `--outfile=${lowered}`],
  );
  return lowered;
}

/** Says why nothing at all can be bundled, as where esbuild cannot be downloaded; `null` if it can. */
export async function findObstacle(): Promise<string | null> {
  const folder = await Deno.makeTempDir();
  try {
    await bundle([], folder);
    return null;
  } catch (error) {
    return (error as Error).message;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function runDeno(args: string[]): Promise<void> {
  const { DENO_COVERAGE_DIR: _left, ...env } = Deno.env.toObject();
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args,
    clearEnv: true,
    env,
    signal: AbortSignal.timeout(SLOWEST_DOWNLOAD_MS),
  }).output();
  if (!success) throw new Error(`deno ${args[0]} failed: ${new TextDecoder().decode(stderr)}`);
}
