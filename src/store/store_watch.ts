/** Receives what {@linkcode Store.watch} reports. */
export interface ChangeListener {
  /** Something may have been committed, or {@linkcode StoreWatch.isLive} has changed. */
  onChange(): void;
  /** A row may have been added to the outbox of a data source that is joined with the store. */
  onOutboxRow?(): void;
  /** The store cannot report changes: once, until it can again. */
  onError(error: unknown): void;
}

/** A watch of a store. */
export interface StoreWatch {
  /** Whether the store reports changes at present. While it does not, those who need to know poll. */
  readonly isLive: boolean;
  /** Ends the watch: nothing is called any more. */
  stop(): void;
}
