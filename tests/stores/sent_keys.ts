import type { PGlite } from "@electric-sql/pglite";
import { FUNCTIONS } from "../../src/stores/postgres/sql/functions.ts";
import { TABLES } from "../../src/stores/postgres/sql/tables.ts";

/**
 * Compares the keys of JSON that the functions of a server read with those that they are sent: a key that is misspelt in
 * SQL is NULL, and no error.
 */
export class SentKeys {
  /** By the name of the function, those of its parameter. */
  readonly #ofFunctions = new Map<string, Set<string>>();
  readonly #all = new Set<string>();

  /** A client that notes what it sends, in transactions, too. */
  watch(client: PGlite): Pick<PGlite, "query" | "exec" | "transaction"> {
    const watched = <T extends Pick<PGlite, "query" | "exec">>(asked: T): Pick<PGlite, "query" | "exec"> => ({
      exec: (sql) => asked.exec(sql),
      query: (sql, parameters) => {
        const [, name, literal] = /\.(\w+?)(?:_outside)?_v\d+\((?:\$1|\$hf_\w+\$(.*?)\$hf_\w+\$)/s.exec(sql) ?? [];
        if (name !== undefined) this.#note(name, JSON.parse(literal ?? String(parameters![0])));
        return asked.query(sql, parameters);
      },
    });
    return {
      ...watched(client),
      transaction: (work) => client.transaction((tx) => work({ ...tx, ...watched(tx) })),
    };
  }

  /** What functions read and nobody sends, as `finish: runID`. */
  findUnsent(): string[] {
    const known = new Set([...this.#all, ...namesIn(TABLES, /^ {2}(\w+) /gm), ...builtKeys()]);
    const unsent = [];
    for (const [text, name] of FUNCTIONS.matchAll(/function fn\.(\w+)\([^$]*\$\$.*?\$\$/gs)) {
      const isEntry = /^function fn\.\w+\(p jsonb, p_now bigint\)/.test(text);
      const own = isEntry ? this.#ofFunctions.get(name!) ?? new Set() : known;
      const read = namesIn(text, /\bp (?:->>?|\?) '(\w+)'/g).filter((key) => !own.has(key));
      const other = namesIn(text, /(?:->>?|\?) '(\w+)'/g).filter((key) => !known.has(key));
      const inPaths = namesIn(text, /#>> '\{(\w+,\w+)\}'/g).flatMap((path) => path.split(","))
        .filter((key) => !known.has(key) && !/^\d+$/.test(key));
      const columns = namesIn(text, /jsonb_to_recordset\(\w+\) as \(([^)]*)\)/g)
        .flatMap((list) => namesIn(list, /"?(\w+)"? \w+(?:,|$)/g)).filter((key) => !this.#all.has(key));
      for (const key of new Set([...read, ...other, ...inPaths, ...columns])) unsent.push(`${name}: ${key}`);
    }
    return unsent.sort();
  }

  #note(name: string, parameter: unknown): void {
    const lists = name === "apply" || name === "join" ? Object.values(parameter as Record<string, unknown>).flat() : [];
    for (const write of lists) {
      if (typeof write === "object" && write !== null && "kind" in write) this.#note(String(write.kind), write);
    }
    if (name === "bounded_claim") this.#note("claim", { ...parameter as object, isBounded: true }); // as it does itself
    const keys = this.#ofFunctions.get(name) ?? new Set();
    this.#ofFunctions.set(name, keys);
    if (typeof parameter === "object" && parameter !== null && !Array.isArray(parameter)) {
      for (const key of Object.keys(parameter)) keys.add(key);
    }
    this.#noteAll(parameter);
  }

  #noteAll(value: unknown): void {
    if (typeof value !== "object" || value === null) return;
    if (!Array.isArray(value)) { for (const key of Object.keys(value)) this.#all.add(key); }
    for (const item of Object.values(value)) this.#noteAll(item);
  }
}

/** The keys of JSON that the functions make themselves. */
function builtKeys(): string[] {
  return [...namesIn(FUNCTIONS, /(?:jsonb?_build_object\(|, |\n *)'(\w+)',/g), ...namesIn(FUNCTIONS, /"(\w+)":/g)];
}

function namesIn(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, name]) => name!);
}
