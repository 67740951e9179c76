/** A replacement of a global, undone at the end of a `using` block. */
export interface Replaced extends Disposable {
  /** Undoes it. */
  restore(): void;
}

/**
 * Replaces `Math.random()`, `crypto.randomUUID()` and `crypto.getRandomValues()` with functions that follow a seed. Undone
 * at the end of a `using` block.
 */
export function fakeChance(seed = 1): Replaced {
  return replaceChance(seed, () => {});
}

/** Does {@linkcode fakeChance}, and calls back for each use. */
export function replaceChance(seed: number, onUse: (what: string) => void): Replaced {
  const next = randomNumbers(seed);
  const fill = (view: ArrayBufferView) => {
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    for (let at = 0; at < bytes.length; at++) bytes[at] = Math.floor(next() * 256);
  };
  const restores = [
    replace(Math, "random", () => (onUse("Math.random()"), next())),
    replace(crypto, "getRandomValues", <T extends ArrayBufferView | null>(view: T): T => {
      onUse("crypto.getRandomValues()");
      if (view !== null) fill(view);
      return view;
    }),
    replace(crypto, "randomUUID", () => (onUse("crypto.randomUUID()"), uuid(next))),
  ];
  return replaced(() => restores.forEach((restore) => restore()));
}

/** Replaces `Date` with one that reads another clock. */
export function replaceDate(now: () => number, onUse: (what: string) => void): Replaced {
  const RealDate = Date;
  const read = (what: string) => (onUse(what), now());
  const FakeDate = new Proxy(RealDate, {
    construct: (target, args, newTarget) =>
      Reflect.construct(target, args.length === 0 ? [read("new Date()")] : args, newTarget),
    apply: () => new RealDate(read("Date()")).toString(),
    get: (target, name) => name === "now" ? () => read("Date.now()") : Reflect.get(target, name),
  });
  return replaced(replace(globalThis, "Date", FakeDate));
}

/** The replacements that are undone, with what each of them replaced. */
const undone = new WeakMap<object, PropertyDescriptor | undefined>();

function replace<T extends object, K extends keyof T>(target: T, name: K, value: T[K] & object): () => void {
  const own = Object.getOwnPropertyDescriptor(target, name);
  Object.defineProperty(target, name, { value, configurable: true, writable: true });
  return () => {
    undone.set(value, own);
    // Tests that overlap undo theirs in any order: the last one also undoes those below it that are over.
    for (let current = Object.getOwnPropertyDescriptor(target, name); undone.has(current?.value);) {
      current = undone.get(current!.value);
      if (current === undefined) delete target[name];
      else Object.defineProperty(target, name, current);
    }
  };
}

function replaced(undo: () => void): Replaced {
  let isUndone = false;
  const restore = () => {
    if (!isUndone) undo();
    isUndone = true;
  };
  return { restore, [Symbol.dispose]: restore };
}

function uuid(next: () => number): `${string}-${string}-${string}-${string}-${string}` {
  const hex = (length: number) => Array.from({ length }, () => Math.floor(next() * 16).toString(16)).join("");
  return `${hex(8)}-${hex(4)}-4${hex(3)}-${"89ab"[Math.floor(next() * 4)]}${hex(3)}-${hex(12)}`;
}

/** Random numbers that follow from a seed, at least 0 and below 1 (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
