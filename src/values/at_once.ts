import { propertyOf } from "./unknown_values.ts";

/** A value that may be there already. */
export type Soon<T> = T | Promise<T>;

/** Goes on with a value at once if it is there, else when it is. */
export function andThen<T, U>(value: Soon<T>, next: (value: T) => Soon<U>): Soon<U> {
  return isPromise(value) ? value.then(next) : next(value);
}

/** Calls a function whose error, at once or later, is explained by another one. */
export function explained<T>(work: () => Soon<T>, explain: (error: unknown) => never): Soon<T> {
  try {
    const answer = work();
    return isPromise(answer) ? answer.catch(explain) : answer;
  } catch (error) {
    return explain(error);
  }
}

/** Whether something has to be awaited. */
export function isPromise<T>(value: T | PromiseLike<T>): value is Promise<T> {
  return typeof propertyOf(value, "then") === "function";
}
