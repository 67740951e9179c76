import { inTime } from "../../processes/deadline.ts";

// The shell lives as long as the mount: when the process that has started it is gone, whatever killed it, `cat` ends.
// Ctrl-C reaches all of them, and is for that process to hear.
const KEEP_MOUNTED = `
  trap '' INT TERM
  mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && cat > /dev/null
  umount "$2" 2> /dev/null || umount -l "$2" 2> /dev/null
  rmdir "$2"
`;
const CHUNKS = [1_048_576, 4_096, 1];

/** A small disk that can be filled, freed and made read-only. It is unmounted in the end. */
export class Tmpfs implements AsyncDisposable {
  /** Where it is mounted. */
  readonly folder: string;
  readonly #keeper: Deno.ChildProcess;

  private constructor(folder: string, keeper: Deno.ChildProcess) {
    this.folder = folder;
    this.#keeper = keeper;
  }

  /** Mounts one of so many megabytes, or answers why that is not possible here. */
  static async mount(megabytes: number): Promise<Tmpfs | { reason: string }> {
    if (Deno.build.os !== "linux") return { reason: "a small disk is mounted on Linux only" };
    const folder = await Deno.makeTempDir({ prefix: "holdfast-tmpfs-" });
    const keeper = new Deno.Command("sh", {
      args: ["-c", KEEP_MOUNTED, "sh", `${megabytes}m`, folder],
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const reader = keeper.stdout.getReader();
    const { done } = await reader.read();
    await reader.cancel();
    if (!done) {
      await keeper.stderr.cancel();
      return new Tmpfs(folder, keeper);
    }
    await keeper.stdin.close();
    const told = (await new Response(keeper.stderr).text()).trim().split("\n")[0];
    await keeper.status;
    return { reason: `a tmpfs cannot be mounted: ${told}` };
  }

  /** Takes all the space that is left. */
  fill(): void {
    using file = Deno.openSync(this.#filler, { append: true, create: true });
    for (const bytes of CHUNKS) while (hasWritten(file, bytes));
  }

  /** Gives back what was taken. */
  free(): void {
    Deno.removeSync(this.#filler);
  }

  get #filler(): string {
    return `${this.folder}/filler`;
  }

  /** Makes it read-only, or writable again. Answers why that is not possible, or `null`. */
  async remount(mode: "ro" | "rw"): Promise<string | null> {
    const { success, stderr } = await new Deno.Command("mount", { args: ["-o", `remount,${mode}`, this.folder] })
      .output();
    return success ? null : new TextDecoder().decode(stderr).trim().split("\n")[0]!;
  }

  /** Unmounts it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#keeper.stdin.close();
    await inTime(this.#keeper.status, `${this.folder} was to be unmounted`);
  }
}

function hasWritten(file: Deno.FsFile, bytes: number): boolean {
  try {
    return file.writeSync(new Uint8Array(bytes)) > 0;
  } catch {
    return false; // there is no space left
  }
}
