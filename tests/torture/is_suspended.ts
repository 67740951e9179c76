/**
 * Whether no thread of a process runs: all are stopped, or it has ended. A SIGSTOP takes a moment, and a thread that is
 * still on its way back from the kernel may write meanwhile. Told by `/proc`, which only Linux has.
 */
export function isSuspended(pid: number): boolean {
  if (Deno.build.os !== "linux") throw new Error(`Whether process ${pid} is suspended cannot be told here`);
  try {
    const threads = [...Deno.readDirSync(`/proc/${pid}/task`)];
    return threads.every(({ name }) =>
      "TtZXx".includes(stateOf(Deno.readTextFileSync(`/proc/${pid}/task/${name}/stat`)))
    );
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || isGone(error)) return true;
    throw error;
  }
}

/** The letter behind the name of the thread, which stands in brackets and may contain anything (proc(5)). */
function stateOf(stat: string): string {
  return stat[stat.lastIndexOf(")") + 2]!;
}

function isGone(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ESRCH";
}
