import { LISTED_LEASES } from "../../../rules.ts";

/** How workers are forgotten. */
export const WORKERS = `
-- See Store.forgetWorker().
create or replace function fn.forget_worker(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  delete from {schema}.workers where id = p ->> 'workerId';
  select null::jsonb
$$;

-- Deletes the entries of workers that died long ago: after a hundred lengths of their leases without a claim, unless the
-- server was away.
create or replace function fn.forget_dead_workers(p_now bigint) returns void language sql volatile as $$
  delete from {schema}.workers where seen_at + lease_ms * ${LISTED_LEASES} < p_now and not fn.was_away()
$$;
`;
