import pg from "pg";
import { pause } from "../pause.ts";

/** The tables of a database, at one instant. */
export interface TableSample {
  /** In which phase. */
  phase: string;
  /** Rows that no transaction will see any more, and that were not removed yet. */
  deadRows: number;
  /** The size of all tables with their indexes, in bytes. */
  bytes: number;
  /** How often autovacuum has cleaned a table. */
  vacuums: number;
}

const READ = `
  select coalesce(sum(n_dead_tup), 0) as dead, coalesce(sum(pg_total_relation_size(relid)), 0) as bytes,
    coalesce(sum(autovacuum_count), 0) as vacuums
  from pg_stat_user_tables`;

/** Looks at all tables of a database again and again, also after its server was away. */
export class TableWatch {
  readonly samples: TableSample[] = [];
  readonly #stopping = new AbortController();
  readonly #ended: Promise<void>;

  /** @param phase Which one it is now. */
  constructor(url: string, everyMs: number, phase: () => string) {
    this.#ended = this.#watch(url, everyMs, phase);
  }

  /** Stops looking. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#ended;
  }

  async #watch(url: string, everyMs: number, phase: () => string): Promise<void> {
    let client: pg.Client | null = null;
    while (!this.#stopping.signal.aborted) {
      await pause(everyMs - Date.now() % everyMs);
      try {
        client ??= await connect(url);
        const { rows: [row] } = await client.query<Record<"dead" | "bytes" | "vacuums", string>>(READ);
        const { dead, bytes, vacuums } = row!; // sums
        this.samples.push({
          phase: phase(),
          deadRows: Number(dead),
          bytes: Number(bytes),
          vacuums: Number(vacuums),
        });
      } catch {
        // There is no server now, or the connection was killed with the others.
        await client?.end().catch(() => {});
        client = null;
      }
    }
    await client?.end();
  }
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {}); // the next statement fails
  await client.connect();
  return client;
}
