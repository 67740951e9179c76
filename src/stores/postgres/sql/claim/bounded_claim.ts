import { ENTRY } from "../basics.ts";

// Connections hold at least about so many bytes for a client that does not read.
const MAX_LENGTH = 200_000;

/** How a claim is answered without keeping others waiting. */
export const BOUNDED_CLAIM = `
-- Claims due runs, and leaves out what it has claimed ("claims" is null) if that is large. The server sends an answer
-- before it commits: a client that is stopped, and does not read, would keep all others who write waiting. A repeated
-- call of fn.claim() reads what was claimed, under the lock of its own worker alone.
create or replace function fn.bounded_claim(p jsonb, p_now bigint) returns text language plpgsql ${ENTRY} as $$
declare v_answer text := fn.claim(p, p_now)::text;
begin
  if octet_length(v_answer) <= ${MAX_LENGTH} then return v_answer; end if;
  return (v_answer::jsonb || '{"claims": null}')::text;
end $$;
`;
