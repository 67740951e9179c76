import type { Store } from "../../store/store.ts";
import type { FakeHost } from "../fake_host.ts";

/** One thing that a store promises, with the test of it. */
export interface Case {
  /** What is promised: `claim() does what`. */
  title: string;
  /** Whether the test moves the clock of the store, or compares its instants with those of `host`. */
  needsHost: boolean;
  /** Tests it on an empty store. */
  body(context: CaseContext): Promise<void>;
}

/** What a case is tested with. */
export interface CaseContext {
  /** An empty store, which tells the time of `host` if the case needs it. */
  store: Store;
  /** The clock of the store. */
  host: FakeHost;
}

/** A list of cases, and the functions that add to it. */
export interface NewCases {
  /** The list. */
  cases: Case[];
  /** Adds a case that holds whatever the clock of the store shows. */
  test(title: string, body: (context: Pick<CaseContext, "store">) => Promise<void>): void;
  /** Adds a case that needs a store that tells the time of the host. */
  timed(title: string, body: (context: CaseContext) => Promise<void>): void;
}

/** Begins a list of cases. */
export function newCases(): NewCases {
  const cases: Case[] = [];
  return {
    cases,
    test: (title, body) => void cases.push({ title, needsHost: false, body }),
    timed: (title, body) => void cases.push({ title, needsHost: true, body }),
  };
}
