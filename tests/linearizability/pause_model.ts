import type { Model } from "./checker.ts";

/** Something that is done to a job which can be paused, or seen of it. */
export type PauseAsk =
  | { is: "pause"; note: string }
  | { is: "resume" }
  | { is: "read" }
  /** A worker claims a run of it: the run starts, or resumes. */
  | { is: "claim"; run: string; generation: number };

/** What was told of it: with which note it is paused, if that was asked. */
export interface PauseTold {
  note?: string | null;
}

/**
 * What the pause of a job does. The state is the note of the pause; `null`: the job is not paused. While it is paused, none
 * of its runs is claimed, and a second pause changes nothing.
 */
export const PAUSE_MODEL: Model<string | null, PauseAsk, PauseTold> = {
  first: null,
  key: (paused) => JSON.stringify(paused),
  isRead: ({ is }) => is === "read" || is === "claim",
  next(paused, ask, told) {
    switch (ask.is) {
      case "pause":
        return [paused ?? ask.note];
      case "resume":
        return [null];
      case "read":
        return told === null || told.note === paused ? [paused] : [];
      case "claim":
        return paused === null ? [paused] : [];
    }
  },
};
