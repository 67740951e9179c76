import { Ledger } from "../../processes/ledger.ts";

/** An empty folder, with names for a database and for a ledger. It is removed in the end. */
export class Place implements AsyncDisposable {
  /** The folder. */
  readonly folder: string;
  /** Where the database will be. */
  readonly database: string;
  /** Where the ledger will be: never on the disk that is to fail. */
  readonly ledgerPath: string;
  /** What the processes have written down. */
  readonly ledger: Ledger;

  private constructor(folder: string, databaseFolder: string) {
    this.folder = folder;
    this.database = `${databaseFolder}/jobs.db`;
    this.ledgerPath = `${folder}/ledger.txt`;
    this.ledger = new Ledger(this.ledgerPath);
  }

  /** Makes the folder. `databaseFolder` is where the database will be, if that is somewhere else. */
  static async make(databaseFolder?: string): Promise<Place> {
    const folder = await Deno.makeTempDir({ prefix: "holdfast-torture-" });
    return new Place(folder, databaseFolder ?? folder);
  }

  /** Removes the folder with all that is in it. */
  [Symbol.asyncDispose](): Promise<void> {
    return Deno.remove(this.folder, { recursive: true });
  }
}
