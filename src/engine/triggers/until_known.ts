import { StoreError } from "../../model/error.ts";

const MAX_REPEATS = 3;

/** Repeats a call whose outcome is unknown: the store recognises the repetition and does not report a conflict. */
export async function untilKnown<T>(call: () => Promise<T>): Promise<T> {
  for (let repeats = 0;; repeats++) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StoreError && error.outcomeUnknown) || repeats === MAX_REPEATS) throw error;
    }
  }
}
