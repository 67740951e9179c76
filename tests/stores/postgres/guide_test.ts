import assert from "node:assert/strict";
import { join } from "node:path";
import { readPage, toPath, toUrl } from "../../docs/pages.ts";
import { startServer } from "./server.ts";

const PAGE = "docs/guides/your_own_database.md";

const server = startServer();
const blocks = readPage(PAGE, Deno.readTextFileSync(toUrl(PAGE))).blocks.filter(({ info, code }) =>
  info === "ts ignore" && code.includes("DATABASE_URL")
);

for (const block of blocks) {
  Deno.test({
    name: `the block in line ${block.line} of ${PAGE} prints what it says on a server`,
    ignore: server === null,
    fn: async () => {
      const folder = await Deno.makeTempDir();
      try {
        const file = join(folder, "block.ts");
        await Deno.writeTextFile(file, block.code);
        const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
          args: ["run", "-A", "--no-check", "--frozen", "--config", toPath("deno.json"), file],
          env: { DATABASE_URL: server!.url, NO_COLOR: "1" },
        }).output();
        assert.ok(success, new TextDecoder().decode(stderr));
        const expected = [...block.code.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map(([, text]) => text);
        assert.deepEqual(new TextDecoder().decode(stdout).trim().split("\n"), expected);
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    },
  });
}

Deno.test("the page has blocks of each driver", () => {
  for (const name of ["drizzle-orm/node-postgres", '"postgres"', '"kysely"']) {
    assert.ok(blocks.some(({ code }) => code.includes(name)), name);
  }
});
