import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import configuration from "../../deno.json" with { type: "json" };
import { readPages, toUrl } from "./pages.ts";

const STEP_MS = 100;

/** The program of the quick start, with other times and another port, as a module of a new project. */
function writeProject(folder: string, port: number): void {
  const page = readPages().find(({ path }) => path === "docs/guides/quick_start.md")!; // it exists
  const program = page.blocks.find(({ code }) => code.includes("Deno.serve"))!.code;
  const { zod, croner } = configuration.imports;
  const imports = {
    "@holdfast/jobs": toUrl("mod.ts").href,
    "@holdfast/jobs/ui": toUrl("src/ui/mod.ts").href,
    zod,
    croner,
  };
  writeFileSync(join(folder, "deno.json"), JSON.stringify({ imports }));
  writeFileSync(join(folder, "main.ts"), program.replace("port: 8000", `port: ${port}`).replace("1_000", `${STEP_MS}`));
}

function findFreePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number }; // it listens on a port, not on a pipe
      server.close(() => resolve(port));
    });
  });
}

/** The program, executed in a process of its own. */
class Program implements AsyncDisposable {
  readonly #process: Deno.ChildProcess;
  readonly #reading: Promise<void>;
  /** What it has printed so far. */
  output = "";

  constructor(folder: string) {
    const env = Deno.env.toObject();
    delete env.DENO_COVERAGE_DIR; // a killed process would leave a file that cannot be read
    this.#process = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-lock", "main.ts"],
      cwd: folder,
      clearEnv: true,
      env: { ...env, NO_COLOR: "1" },
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#reading = this.#read();
  }

  async #read(): Promise<void> {
    for await (const text of this.#process.stdout.pipeThrough(new TextDecoderStream())) this.output += text;
  }

  /** The rows that it has inserted: the text of each line, with the key of its step. */
  get inserted(): string[] {
    return this.output.split("\n").filter((line) => line.includes(", row "));
  }

  async until(condition: () => boolean | Promise<boolean>): Promise<void> {
    for (let tries = 0; !await condition(); tries++) {
      assert.ok(tries < 1_200, `it takes over a minute:\n${this.output}`);
      await setTimeout(50);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#process.kill("SIGKILL");
    } catch {
      // It has ended.
    }
    await Promise.all([this.#process.status, this.#reading]);
  }
}

Deno.test("the program of the quick start survives a kill, shows a dashboard, and inserts each row once", async () => {
  const folder = mkdtempSync(join(tmpdir(), "quick-start-"));
  try {
    const port = await findFreePort();
    writeProject(folder, port);
    const api = `http://127.0.0.1:${port}/api/jobs`;

    const first = new Program(folder);
    await first.until(() => first.inserted.length >= 3);
    await first[Symbol.asyncDispose]();
    await using second = new Program(folder);
    await second.until(() => second.output.includes("Open http"));
    const page = await fetch(`${api}/ui/`);
    await page.body?.cancel();
    let run: { status: string; output: unknown } = { status: "", output: null };
    await second.until(async () => {
      const { runs, total } = await (await fetch(`${api}/runs`)).json();
      assert.equal(total, 1);
      run = runs[0];
      return run.status === "completed";
    });

    assert.equal(page.status, 200);
    assert.deepEqual(run.output, { rows: 20 });
    // The row at which the first process was killed may be inserted again, under the same key.
    assert.equal(new Set([...first.inserted, ...second.inserted]).size, 20);
    assert.ok(first.inserted.length + second.inserted.length <= 21);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
