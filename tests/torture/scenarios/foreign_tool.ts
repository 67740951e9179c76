// Another program that has the database open, and is careless. It does what it is told until it hears "release".
// Arguments: the database.

import { DatabaseSync } from "node:sqlite";
import { heardLines, say } from "../../processes/parent.ts";

const [path] = Deno.args as [string];

/** What each kind of carelessness is, as statements. */
const HOLDING: Record<string, string> = {
  "a write transaction left open": "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS foreign_notes (note TEXT)",
  "an exclusive transaction": "BEGIN EXCLUSIVE; CREATE TABLE IF NOT EXISTS foreign_notes (note TEXT)",
  "the file for itself alone": "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE",
  "a reader that holds a snapshot": "BEGIN; SELECT count(*) FROM holdfast_runs",
};

let db: DatabaseSync | null = null;
for await (const word of heardLines()) {
  if (word === "release") {
    db!.exec("ROLLBACK");
    db!.close();
    say({ type: "released" });
  } else {
    db = new DatabaseSync(path, { timeout: 10_000 });
    db.exec(HOLDING[word]!);
    say({ type: "holding" });
  }
}
