import { Keeper } from "./keeper.ts";

const MOUNT = {
  do: 'mount -t tmpfs -o "size=$1" tmpfs "$2"',
  undo: 'umount "$2" 2> /dev/null || umount -l "$2" 2> /dev/null; rmdir "$2"',
};
const CHUNKS = [1_048_576, 4_096, 1];

/** A small disk that can be filled, freed and made read-only. It is unmounted in the end. */
export class Tmpfs implements AsyncDisposable {
  /** Where it is mounted. */
  readonly folder: string;
  readonly #keeper: Keeper;

  private constructor(folder: string, keeper: Keeper) {
    this.folder = folder;
    this.#keeper = keeper;
  }

  /** Mounts one of so many megabytes, or answers why that is not possible here. */
  static async mount(megabytes: number): Promise<Tmpfs | { reason: string }> {
    if (Deno.build.os !== "linux") return { reason: "a small disk is mounted on Linux only" };
    const folder = await Deno.makeTempDir({ prefix: "holdfast-tmpfs-" });
    const keeper = await Keeper.begin(MOUNT, `${megabytes}m`, folder);
    return keeper instanceof Keeper
      ? new Tmpfs(folder, keeper)
      : { reason: `a tmpfs cannot be mounted: ${keeper.reason}` };
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
    await this.#keeper[Symbol.asyncDispose]();
  }
}

function hasWritten(file: Deno.FsFile, bytes: number): boolean {
  try {
    return file.writeSync(new Uint8Array(bytes)) > 0;
  } catch {
    return false; // there is no space left
  }
}
