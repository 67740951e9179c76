import type { Model } from "./checker.ts";

/** Something that is done to a schedule with a slot each second, or seen of it. All instants are in milliseconds. */
export type SlotAsk =
  | { is: "pause" }
  /** Is asked from `from` to `to`; `Infinity`: it was told nothing. */
  | { is: "resume"; from: number; to: number }
  /** The run of a slot, which was first claimed by `by`. */
  | { is: "fire"; slot: number; run: string; by: number };

/** It was so. */
export type Done = "done";

/** Which slot may be fired next. */
export type SlotState =
  | { is: "paused" }
  /** It has been resumed: the first slot after a moment between two instants. */
  | { is: "resumed"; after: number; until: number }
  /** The next slot, and no other. */
  | { is: "fired"; slot: number };

const SECOND = 1_000;

/**
 * What a schedule does that fires all its slots, one a second: each has exactly one run, in their order and not before its
 * time; and the slots of a pause have none.
 */
export const SLOT_MODEL: Model<SlotState, SlotAsk, Done> = {
  first: { is: "resumed", after: -Infinity, until: Infinity },
  key: (state) => Object.values(state).join(),
  next(state, ask) {
    switch (ask.is) {
      case "pause":
        return [{ is: "paused" }];
      case "resume":
        // One that is not paused goes on where it was.
        return [state.is === "paused" ? { is: "resumed", after: ask.from, until: ask.to + SECOND } : state];
      case "fire":
        return ask.by >= ask.slot && isNext(state, ask.slot) ? [{ is: "fired", slot: ask.slot }] : [];
    }
  },
};

function isNext(state: SlotState, slot: number): boolean {
  switch (state.is) {
    case "paused":
      return false;
    case "resumed":
      return slot >= state.after && slot <= state.until;
    case "fired":
      return slot === state.slot + SECOND;
  }
}
