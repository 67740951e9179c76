import { ConflictError, NotFoundError } from "../error.ts";
import type { ClientRun } from "../client_run.ts";
import type { FoundBy } from "../store/operator_reads.ts";
import { askApi } from "./service/api.ts";
import type { Service } from "./service/service.ts";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Runs that a search has found. */
export type Found = readonly { run: ClientRun; by: FoundBy }[];

/**
 * The id of the run that an argument means: an id, or the start or the end of one.
 *
 * @throws {NotFoundError} No run has such an id.
 * @throws {ConflictError} Several runs have.
 */
export async function findRunId(service: Service, text: string): Promise<string> {
  if (UUID.test(text)) return text.toLowerCase();
  const found = await askApi<Found>(service, "GET", "/find", { query: { q: text } });
  const ids = found.filter(({ by }) => by === "id").map(({ run }) => run.id);
  if (ids.length === 0) throw new NotFoundError(`There is no run "${text}"`);
  if (ids.length > 1) throw new ConflictError(`Several runs have ids like "${text}": ${ids.slice(0, 5).join(", ")}`);
  return ids[0]!;
}
