// Only reached when something is broken: a slow machine must not make a test fail.
const DEADLINE_MS = 60_000;
const LOOK_EVERY_MS = 10;

/** The same promise, but rejected when it has not settled in time. `what` says what was waited for. */
export async function inTime<T>(promise: Promise<T>, what: string): Promise<T> {
  let timer: ReturnType<typeof setTimeout>;
  const tooLate = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`Waited ${DEADLINE_MS} ms in vain: ${what}`)), DEADLINE_MS);
  });
  return await Promise.race([promise, tooLate]).finally(() => clearTimeout(timer));
}

/** Resolves when a condition is true, which it looks at over and over. `what` says what was waited for. */
export async function until(isTrue: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const giveUpAt = performance.now() + DEADLINE_MS;
  while (!await isTrue()) {
    if (performance.now() > giveUpAt) throw new Error(`Waited ${DEADLINE_MS} ms in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}
