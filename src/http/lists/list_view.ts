/** How a list of runs is shown. */
export interface ListView {
  /** Only runs that were triggered before this one; left out: all. */
  before?: string;
  /** Whether inputs and outputs are left out. */
  isSummary: boolean;
}
