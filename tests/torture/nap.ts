/** Waits for so many milliseconds, or until the signal is aborted. */
export async function nap(ms: number, abortSignal: AbortSignal): Promise<void> {
  if (abortSignal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  abortSignal.addEventListener("abort", () => resolve(), { once: true });
  await promise;
  clearTimeout(timer);
}
