/** What not every system has. */
const NEEDS = {
  /** Windows ends a process at once, whatever the signal. */
  "signals": { has: Deno.build.os !== "windows", without: "Windows sends a process no signal that it could handle" },
  "moved files": {
    has: Deno.build.os !== "windows",
    without: "Windows lets nobody delete or rename a file that is open",
  },
  "a full device": { has: Deno.build.os === "linux", without: "only Linux has /dev/full" },
  "file modes": { has: Deno.build.os !== "windows", without: "Windows has no file modes" },
} as const;

/**
 * Options of a test that needs something: it is skipped where this is missing, and the reason is printed.
 */
export function needs(what: keyof typeof NEEDS): { ignore: boolean } {
  const { has, without } = NEEDS[what];
  if (!has) console.log(`A test is skipped: ${without}`);
  return { ignore: !has };
}
