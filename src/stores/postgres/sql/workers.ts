import { LISTED_LEASES } from "../../rules.ts";

// A lease that expires while the server is away has not been abandoned: nobody could renew it. So the first claim after an
// outage begins all leases anew.
//
// The table `server` says which start of the server the last claim has seen. It is unlogged, so it is empty after a crash
// of the server, also of one of its processes, and on a standby that is promoted. None of these shows in the time at
// which the server was started.

/** What is known of workers, and how they outlive outages of the server. */
export const WORKERS = `
-- Whether the server was away since the last claim.
create or replace function fn.was_away() returns boolean language plpgsql stable as $$
begin
  -- There, the table cannot even be read.
  if pg_is_in_recovery() then raise exception 'the server is a standby' using errcode = '25006'; end if;
  return not exists (select from {schema}.server s where s.started_at = pg_postmaster_start_time());
end $$;

-- After an outage, leases end no earlier than one length of them from now, and workers that were live before it stay live
-- as long. The caller holds the lock of the schema.
create or replace function fn.begin_leases_anew(p_now bigint) returns void language plpgsql as $$
declare v_seen_at bigint; v_longest bigint;
begin
  if not fn.was_away() then return; end if;
  select max(w.seen_at), max(w.lease_ms) into v_seen_at, v_longest from {schema}.workers w;
  update {schema}.runs r set lease_expires_at = greatest(r.lease_expires_at + 1, p_now + w.lease_ms)
    from {schema}.workers w where r.status = 'running' and w.id = r.lease_owner;
  update {schema}.ghosts g set expires_at = greatest(g.expires_at, p_now + v_longest) where v_longest is not null;
  -- The newest claim tells how long the server was certainly there.
  update {schema}.workers w set seen_at = p_now where w.seen_at + w.lease_ms > v_seen_at;
  -- Nothing of an unlogged table is in the log: no commit waits for it.
  perform fn.commit_something();
  delete from {schema}.server;
  insert into {schema}.server values (pg_postmaster_start_time());
end $$;

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
