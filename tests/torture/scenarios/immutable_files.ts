import { inTime } from "../../processes/deadline.ts";

// The shell undoes it when its input ends, so also when the process that has started it is gone, whatever killed it.
// Ctrl-C reaches both, and is for that process to hear.
const KEEP_IMMUTABLE = `
  trap '' INT TERM
  chattr +i "$@" && echo immutable && cat > /dev/null
  chattr -i "$@"
`;

/** Files that nobody can write to, not even who has them open. They are as before in the end. */
export class ImmutableFiles implements AsyncDisposable {
  readonly #keeper: Deno.ChildProcess;

  private constructor(keeper: Deno.ChildProcess) {
    this.#keeper = keeper;
  }

  /** Makes files immutable, or answers why that is not possible here. */
  static async make(...paths: string[]): Promise<ImmutableFiles | { reason: string }> {
    const keeper = new Deno.Command("sh", {
      args: ["-c", KEEP_IMMUTABLE, "sh", ...paths],
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const reader = keeper.stdout.getReader();
    const { done } = await reader.read();
    await reader.cancel();
    if (!done) {
      await keeper.stderr.cancel();
      return new ImmutableFiles(keeper);
    }
    await keeper.stdin.close();
    const told = (await new Response(keeper.stderr).text()).trim().split("\n")[0];
    await keeper.status;
    return { reason: `a file cannot be made immutable: ${told}` };
  }

  /** Lets them be written to again. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#keeper.stdin.close();
    const { code } = await inTime(this.#keeper.status, "files were to be writable again");
    if (code !== 0) throw new Error(`Files are still immutable: chattr ended with ${code}`);
  }
}
