import { DatabaseSync } from "node:sqlite";
import { setTimeout as pause } from "node:timers/promises";
import { defineJob } from "@holdfast/jobs";
import { z } from "zod";

const Earthquake = z.object({
  id: z.string().min(1),
  time: z.iso.datetime(),
  latitude: z.coerce.number(),
  longitude: z.coerce.number(),
  depth: z.coerce.number(),
  mag: z.coerce.number(),
  place: z.string(),
});

type Earthquake = z.infer<typeof Earthquake>;

/** Who lets an import go on to its end. */
const Release = z.object({ by: z.string() });

/** What a run of {@linkcode importEarthquakes} answers. */
export const ImportSummary = z.object({
  rows: z.number(),
  /** How many are of magnitude 4.5 or more. */
  strong: z.number(),
  /** The five strongest, strongest first. */
  strongest: z.array(Earthquake.pick({ time: true, mag: true, place: true })),
  /** Who released the import. */
  releasedBy: z.string(),
});

const Counts = ImportSummary.omit({ releasedBy: true });

/** Imports a CSV file of earthquakes into a SQLite database, one step a chunk, and asks before it sums up. */
export const importEarthquakes = defineJob({
  name: "import-earthquakes",
  input: z.object({
    /** The CSV file. */
    path: z.string(),
    /** The SQLite file to import into; it is made if it does not exist. */
    database: z.string(),
    /** How many rows are imported in one step. */
    chunkSize: z.int().positive().default(72),
    /** How much longer each chunk takes than it has to, in milliseconds, so that there is something to watch. */
    pauseMs: z.int().nonnegative().default(0),
  }),
  output: ImportSummary,
  async run(step, { path, database, chunkSize, pauseMs }) {
    const total = await step.run("count rows", async () => (await readEarthquakes(path)).length);

    const chunks = Math.ceil(total / chunkSize);
    for (let chunk = 1; chunk <= chunks; chunk++) {
      const end = Math.min(chunk * chunkSize, total);
      await step.run(`chunk ${chunk}`, async ({ idempotencyKey, abortSignal }) => {
        const earthquakes = await readEarthquakes(path);
        await pause(pauseMs / 2, undefined, { signal: abortSignal });
        insertOnce(database, idempotencyKey, earthquakes.slice((chunk - 1) * chunkSize, end));
        // A process that dies here has imported the chunk, but the step is not recorded: it will be executed again.
        await pause(pauseMs / 2, undefined, { signal: abortSignal });
      });
      step.progress(end, total, `chunk ${chunk} of ${chunks}`);
    }

    // The run holds no worker, no lease and no memory until somebody answers.
    const release = await step.wait("release", { timeout: 60 * 60 * 1_000, schema: Release });
    if (release.outcome === "timeout") throw new Error("Nobody released the import within an hour");
    const summary = await step.run("summarise", () => summarise(database));
    return { ...summary, releasedBy: release.payload.by };
  },
});

/**
 * Inserts a chunk, unless that was done before. The key of the step is committed together with the rows: either both
 * are there or neither, so a step that is executed twice still imports its chunk once.
 */
function insertOnce(database: string, idempotencyKey: string, earthquakes: readonly Earthquake[]): void {
  using db = openTarget(database);
  db.exec("BEGIN IMMEDIATE"); // Closing the database undoes what was not committed.
  const isNew = db.prepare("INSERT INTO imported_chunks VALUES (?) ON CONFLICT DO NOTHING").run(idempotencyKey).changes;
  if (!isNew) return;
  const insert = db.prepare("INSERT INTO earthquakes VALUES (:id, :time, :latitude, :longitude, :depth, :mag, :place)");
  for (const earthquake of earthquakes) insert.run(earthquake);
  db.exec("COMMIT");
}

function summarise(database: string): z.infer<typeof Counts> {
  using db = openTarget(database);
  const counts = db.prepare("SELECT count(*) AS rows, count(*) FILTER (WHERE mag >= 4.5) AS strong FROM earthquakes");
  const strongest = db.prepare("SELECT time, mag, place FROM earthquakes ORDER BY mag DESC, time LIMIT 5");
  return Counts.parse({ ...counts.get(), strongest: strongest.all() });
}

function openTarget(database: string): DatabaseSync {
  const db = new DatabaseSync(database, { timeout: 5_000 });
  // A real table would have a primary key. Without one, nothing but `imported_chunks` keeps rows from coming twice.
  db.exec(`
    CREATE TABLE IF NOT EXISTS earthquakes (
      id TEXT NOT NULL, time TEXT NOT NULL, latitude REAL NOT NULL, longitude REAL NOT NULL, depth REAL NOT NULL,
      mag REAL NOT NULL, place TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS imported_chunks (idempotency_key TEXT PRIMARY KEY) STRICT;
  `);
  return db;
}

/** Reads the whole file, which is small, each time that a step needs it: a step relies on nothing in memory. */
async function readEarthquakes(path: string): Promise<Earthquake[]> {
  const [header, ...lines] = (await Deno.readTextFile(path)).trimEnd().split(/\r?\n/);
  const columns = parseLine(header!);
  return lines.map((line) => {
    const fields = parseLine(line);
    return Earthquake.parse(Object.fromEntries(columns.map((column, position) => [column, fields[position]])));
  });
}

/** The fields of a line of CSV (RFC 4180, section 2; line breaks within quotes are not supported). */
function parseLine(line: string): string[] {
  const fields = line.matchAll(/(?<=^|,)(?:"((?:[^"]|"")*)"|([^",]*))(?=,|$)/g);
  return [...fields].map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain!);
}
