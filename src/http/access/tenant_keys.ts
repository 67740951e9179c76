import { SCHEDULE_KEYS } from "../../engine/schedules/schedule_options.ts";
import { ValidationError } from "../../model/error.ts";
import type { NewRun } from "../../store/new_run.ts";

/**
 * Refuses the key of a slot: a client could have it lead to a run of its own.
 *
 * @throws {ValidationError} The key begins as those of schedules do.
 */
export function checkNotOfSchedule(key: string | null): void {
  if (key === null || !key.startsWith(SCHEDULE_KEYS)) return;
  throw new ValidationError(`idempotencyKey must not begin with "${SCHEDULE_KEYS}": schedules have such keys`);
}

/**
 * Prefixes keys with the tenant, so that tenants cannot share one: the name ends at the first "/". A tenant whose keys
 * would be those of schedules gets a prefix that no other name leads to. Tenants take turns, unless a label of the run
 * says whose turn it is.
 */
export function ofTenant(tenant: string, run: NewRun): NewRun {
  const prefix = tenantPrefix(tenant);
  const own = (key: string | null) => key === null ? null : prefix + key;
  return {
    ...run,
    idempotencyKey: own(run.idempotencyKey),
    concurrencyKey: own(run.concurrencyKey),
    flow: { ...run.flow, fairnessKey: run.flow.fairnessKey ?? tenant },
  };
}

/** What the keys of a tenant begin with. */
export function tenantPrefix(tenant: string): string {
  const encoded = `${tenant.replaceAll(/[%/]/g, encodeURIComponent)}/`;
  return encoded === SCHEDULE_KEYS ? `%${encoded}` : encoded;
}

/** A stored key as its tenant gave it. A key that is not of this tenant stays as it is stored. */
export function asGiven(tenant: string, key: string): string {
  const prefix = tenantPrefix(tenant);
  return key.startsWith(prefix) ? key.slice(prefix.length) : key;
}
