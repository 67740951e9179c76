/** A check of the tables of a store. */
export interface TableCheck {
  /** What has to be true. */
  name: string;
  /** A statement whose rows are what is wrong: one column `r`, a sentence. */
  sql: string;
}
