/**
 * A promise that removes itself from a collection when it is first awaited or chained. `await`, `then()` and `Promise.all()` all read `constructor` of a
 * promise (ECMA-262, PromiseResolve and SpeciesConstructor), and find that of a plain promise: with a `then()` of its own,
 * or another constructor, it would be awaited some turns later.
 */
export class WatchedPromise<T> extends Promise<T> {
  /** What it is removed from. */
  unseen: { delete(promise: WatchedPromise<unknown>): unknown } | null = null;

  static {
    Object.defineProperty(this.prototype, "constructor", {
      get(this: WatchedPromise<unknown>) {
        this.unseen?.delete(this);
        return Promise;
      },
    });
  }
}
