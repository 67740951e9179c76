import { StoreError } from "../../../error.ts";
import { VERSION } from "../sql/names.ts";

/** The error of a call that finds tables of a newer version than this one. */
export function newerTablesError(found: number, cause?: unknown): StoreError {
  return new StoreError(
    `The database has tables of version ${found}; this version of Holdfast knows them up to ${VERSION}`,
    { code: "internal", cause },
  );
}
