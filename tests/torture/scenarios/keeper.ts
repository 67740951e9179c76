import { inTime } from "../../processes/deadline.ts";

/**
 * Keeps something as it is for as long as this process lives, whatever it dies of: a shell that undoes it when its input
 * ends. Ctrl-C reaches both, and is for this process to hear.
 */
export class Keeper implements AsyncDisposable {
  readonly #shell: Deno.ChildProcess;

  private constructor(shell: Deno.ChildProcess) {
    this.#shell = shell;
  }

  /**
   * Does something, or answers why that is not possible here.
   *
   * @param action The commands that do it, and those that undo it: `$1` and so on are the arguments.
   */
  static async begin(action: { do: string; undo: string }, ...args: string[]): Promise<Keeper | { reason: string }> {
    const script = `trap '' INT TERM; ${action.do} && echo done && cat > /dev/null; ${action.undo}`;
    const shell = new Deno.Command("sh", {
      args: ["-c", script, "sh", ...args],
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const reader = shell.stdout.getReader();
    const { done } = await reader.read();
    await reader.cancel();
    if (!done) {
      await shell.stderr.cancel();
      return new Keeper(shell);
    }
    await shell.stdin.close();
    const told = (await new Response(shell.stderr).text()).trim().split("\n")[0]!;
    await shell.status;
    return { reason: told };
  }

  /** Undoes it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#shell.stdin.close();
    const { code } = await inTime(this.#shell.status, "what was done to a disk or a file was to be undone");
    if (code !== 0) throw new Error(`What was done to a disk or a file is not undone: ${code}`);
  }
}
