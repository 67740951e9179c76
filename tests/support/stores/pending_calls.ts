/** Counts calls to an object that have not been answered yet. */
export class PendingCalls {
  #count = 0;
  #waiting: (() => void)[] = [];

  /** How many calls are not answered yet. */
  get count(): number {
    return this.#count;
  }

  /** The same object, each of whose methods counts as a call until the promise that it returns is settled. */
  watch<T extends object>(target: T): T {
    return new Proxy(target, {
      get: (_, name) => {
        const value = Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => this.#track(value.apply(target, args));
      },
    });
  }

  /** Resolves when a call is answered. */
  async next(): Promise<void> {
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #track(answer: unknown): unknown {
    if (!(answer instanceof Promise)) return answer;
    this.#count += 1;
    const end = () => {
      this.#count -= 1;
      for (const resolve of this.#waiting.splice(0)) resolve();
    };
    answer.then(end, end);
    return answer;
  }
}
