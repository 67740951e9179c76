/** Waits for so many milliseconds, or until the signal is aborted. */
export async function nap(ms: number, abortSignal: AbortSignal): Promise<void> {
  if (abortSignal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const wake = () => resolve();
  const timer = setTimeout(wake, ms);
  abortSignal.addEventListener("abort", wake, { once: true });
  await promise;
  clearTimeout(timer);
  abortSignal.removeEventListener("abort", wake);
}
