/** Replaces a method of a class, until the returned function is called. */
export function replace<T extends object, K extends keyof T & string>(
  prototype: T,
  name: K,
  make: (old: Method<T, K>) => (this: T, ...parameters: Parameters<Method<T, K>>) => ReturnType<Method<T, K>>,
): () => void {
  const old = prototype[name];
  prototype[name] = make(old as Method<T, K>) as T[K];
  return () => void (prototype[name] = old);
}

// deno-lint-ignore no-explicit-any -- whatever the method takes and returns
type Method<T, K extends keyof T> = Extract<T[K], (...parameters: any[]) => any>;
