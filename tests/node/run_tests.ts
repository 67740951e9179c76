import { bundle } from "./bundle.ts";
import type { Node } from "./find_node.ts";

/** What came of tests on Node. */
export interface NodeReport {
  /** How Node ended: 0 if it is content. */
  code: number;
  /** Everything but the tests that passed: those that failed or were left out, with the reasons, and the counts. */
  told: string;
  /** What the tests printed as warnings and errors. */
  errors: string;
  /** How many tests there were, and what became of them: `tests`, `pass`, `fail`, `cancelled`, `skipped`, `todo`. */
  counts: Readonly<Record<string, number>>;
}

const SHIM = new URL("./deno_test_on_node.ts", import.meta.url);
const SLOWEST_RUN_MS = 300_000;

/** Runs files of tests in one process of Node. */
export async function runTests(node: Node, files: readonly URL[]): Promise<NodeReport> {
  const folder = await Deno.makeTempDir();
  try {
    const module = await bundle([SHIM, ...files], folder);
    const { code, stdout, stderr } = await new Deno.Command(node.path, {
      args: ["--enable-source-maps", "--test-reporter=spec", module],
      cwd: folder,
      env: { NODE_OPTIONS: "", FORCE_COLOR: "0" },
      signal: AbortSignal.timeout(SLOWEST_RUN_MS),
    }).output();
    const lines = new TextDecoder().decode(stdout).split("\n");
    return {
      code,
      told: lines.filter((line) => !line.startsWith("✔")).join("\n"),
      errors: new TextDecoder().decode(stderr),
      counts: Object.fromEntries(lines.flatMap((line) => {
        const [, name, count] = /^ℹ (\w+) (\d+)$/.exec(line) ?? [];
        return name === undefined ? [] : [[name, Number(count)]];
      })),
    };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
