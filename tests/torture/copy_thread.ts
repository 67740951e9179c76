import { examineCopy, type Expected } from "./copy_examination.ts";

// Copies are examined in a thread of their own: what reads a whole file must not keep the driver from its blows.

interface Order {
  path: string;
  expected: Expected | null;
}

/** Examines copies of the database without holding anybody up. */
export class CopyThread implements Disposable {
  readonly #thread = new Worker(import.meta.url, { type: "module" });
  #last: Promise<unknown> = Promise.resolve();

  /** What is wrong with a copy; see `examineCopy()`. One after the other. */
  examine(path: string, expected: Expected | null): Promise<string[]> {
    const answer = this.#last.then(() => this.#ask({ path, expected }));
    this.#last = answer.catch(() => {});
    return answer;
  }

  #ask(order: Order): Promise<string[]> {
    return new Promise((resolve, reject) => {
      this.#thread.onmessage = ({ data }) => resolve(data);
      this.#thread.onerror = (event) => reject(new Error(event.message));
      this.#thread.postMessage(order);
    });
  }

  /** Ends the thread. */
  [Symbol.dispose](): void {
    this.#thread.terminate();
  }
}

if ("WorkerGlobalScope" in globalThis) {
  const thread = globalThis as unknown as Worker;
  thread.onmessage = ({ data }) => {
    const { path, expected } = data as Order;
    thread.postMessage(examineCopy(path, expected));
  };
}
