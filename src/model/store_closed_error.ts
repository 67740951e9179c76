import { StoreError } from "./error.ts";

/** The store is closed: no later call is answered, either, so nobody repeats this one. */
export class StoreClosedError extends StoreError {
  /** Creates the error of a call to a store that is closed. */
  constructor() {
    super("The store is closed");
    this.name = "StoreError"; // what users know
  }
}
