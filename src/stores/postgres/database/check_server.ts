import { StoreError } from "../../../error.ts";

const OTHER_ENGINES = [
  {
    name: "CockroachDB",
    pattern: /CockroachDB/,
    reason: "it has neither advisory locks nor LISTEN, and may skip rows that are due",
  },
  {
    name: "YugabyteDB",
    pattern: /-YB-/,
    reason: "its sequences and snapshots work differently, so that readers of events would miss some",
  },
];

/**
 * Refuses engines that speak the protocol of PostgreSQL but do not keep what the store relies on.
 *
 * @param version What `version()` returns.
 * @throws {StoreError} It is such an engine.
 */
export function checkServer(version: string): void {
  const engine = OTHER_ENGINES.find(({ pattern }) => pattern.test(version));
  if (engine === undefined) return;
  throw new StoreError(`PostgresStore does not support ${engine.name}: ${engine.reason}. Use PostgreSQL`, {
    code: "internal",
  });
}
