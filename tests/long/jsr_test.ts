import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const FOLDER = fileURLToPath(new URL("../jsr/", import.meta.url));
/** The packages, in the versions whose types the stand-ins have, with the file that stands in for each of their entry points. */
const STAND_INS: Readonly<Record<string, { version: string; exports: Record<string, string> }>> = {
  "@db/sqlite": { version: "0.13.0", exports: { ".": "sqlite.ts" } },
  "@std/assert": { version: "1.0.19", exports: { ".": "assert.ts" } },
  "@std/http": { version: "1.1.3", exports: { "./status": "http_status.ts", "./unstable-route": "http_route.ts" } },
};
const FEWEST_TESTS = 700;

/** Writes a registry of the stand-ins, in the form of jsr.io (https://jsr.io/docs/api#jsr-registry-api). */
async function writeRegistry(folder: string): Promise<void> {
  const write = async (path: string, content: string | Uint8Array) => {
    await Deno.mkdir(dirname(join(folder, path)), { recursive: true });
    await Deno.writeFile(join(folder, path), typeof content === "string" ? new TextEncoder().encode(content) : content);
  };
  for (const [name, { version, exports }] of Object.entries(STAND_INS)) {
    const manifest: Record<string, { size: number; checksum: string }> = {};
    for (const file of Object.values(exports)) {
      const content = await Deno.readFile(new URL(`../jsr_stand_ins/${file}`, import.meta.url));
      const checksum = `sha256-${createHash("sha256").update(content).digest("hex")}`;
      manifest[`/${file}`] = { size: content.length, checksum };
      await write(`${name}/${version}/${file}`, content);
    }
    const entries = Object.entries(exports).map(([entry, file]) => [entry, `./${file}`]);
    await write(`${name}/meta.json`, JSON.stringify({ versions: { [version]: {} } }));
    await write(
      `${name}/${version}_meta.json`,
      JSON.stringify({ manifest, exports: Object.fromEntries(entries) }),
    );
  }
}

Deno.test("the tests in tests/jsr pass, with their types, over stand-ins for what comes from JSR", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await writeRegistry(folder);
    const { DENO_COVERAGE_DIR: _left, ...env } = Deno.env.toObject();

    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "-A", "--no-lock", "--config", join(FOLDER, "deno.json"), FOLDER],
      clearEnv: true,
      env: { ...env, NO_COLOR: "1", JSR_URL: `${pathToFileURL(folder)}/` },
    }).output();

    const [told, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
    assert.equal(code, 0, `${told}\n${errors}`);
    const [, passed] = /^ok \| (\d+) passed/m.exec(told!) ?? assert.fail(told);
    assert.ok(Number(passed) >= FEWEST_TESTS, `${passed} tests passed`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
