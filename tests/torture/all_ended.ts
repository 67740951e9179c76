/** The results of works that go on at the same time. None is left behind when another one has failed. */
export async function allEnded<T extends readonly Promise<unknown>[]>(
  works: readonly [...T],
): Promise<{ [Index in keyof T]: Awaited<T[Index]> }> {
  await Promise.allSettled(works);
  return await Promise.all(works);
}
