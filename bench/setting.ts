/** Where and how large something is measured. */
export interface Setting {
  /** An empty directory of its own, which is removed afterwards. */
  readonly folder: string;
  /** A directory for what takes long to prepare: the same for all measurements of one command. */
  readonly shared: string;
  /** How many of something: the first number, or the second when the command only tries whether everything works. */
  size(full: number, quick: number): number;
  /** Says what is going on within a measurement that takes long. */
  say(text: string): void;
}
