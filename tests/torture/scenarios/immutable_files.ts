import { Keeper } from "./keeper.ts";

/** Makes files immutable, also for who has them open, until this is disposed of; or answers why that is not possible. */
export async function makeImmutable(...paths: string[]): Promise<Keeper | { reason: string }> {
  const keeper = await Keeper.begin({ do: 'chattr +i "$@"', undo: 'chattr -i "$@"' }, ...paths);
  return keeper instanceof Keeper ? keeper : { reason: `a file cannot be made immutable: ${keeper.reason}` };
}
