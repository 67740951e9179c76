import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
// 656 of them are for streams of items, 459 for messages, 158 for reads that are repeated, and 1,120 for what is refused,
// or ended by its signal, and was silently wrong before.
const MOST_BYTES = 6_500;

/** Bundles the client as for a browser; `null` where esbuild cannot be downloaded. */
async function bundle(): Promise<string | null> {
  const { DENO_COVERAGE_DIR: _left, ...env } = Deno.env.toObject();
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["bundle", "--quiet", "--minify", "--platform", "browser", "src/client/mod.ts"],
    cwd: ROOT,
    clearEnv: true,
    env,
  }).output();
  if (success) return new TextDecoder().decode(stdout);
  console.log(`The client is not bundled: ${new TextDecoder().decode(stderr)}`);
  return null;
}

const code = await bundle();

Deno.test("the client is smaller than 6,500 bytes, and has nothing of the server", { ignore: code === null }, () => {
  const bytes = new TextEncoder().encode(code!).length; // ignored without it

  assert.ok(bytes > 1_000 && bytes < MOST_BYTES, `${bytes} bytes`);
  assert.doesNotMatch(code!, /zod|node:|sqlite|\bimport\b/i);
});
