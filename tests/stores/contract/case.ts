import type { Store } from "../../../src/store.ts";
import type { FakeHost } from "../../support/fake_host.ts";

/** One thing that a store promises, with the test of it. */
export interface Case {
  /** What is promised: `claim() does what`. */
  title: string;
  /** Tests it on an empty store, which tells the time of `host`. */
  body(context: { store: Store; host: FakeHost }): Promise<void>;
}

/** Begins a list of cases, and answers it with the function that adds to it. */
export function newCases(): { cases: Case[]; test: (title: string, body: Case["body"]) => void } {
  const cases: Case[] = [];
  return { cases, test: (title, body) => void cases.push({ title, body }) };
}
