import type pg from "pg";

// Of Linux: 100 a second. In /proc/PID/stat, behind the name, the parent, and the times of a process and of its children that
// have ended.
const TICK_US = 10_000;
const CPU = `
  with recursive own (pid) as (select pg_backend_pid()),
  server (pid) as (select split_part(regexp_replace(pg_read_file('/proc/' || pid || '/stat'), '^.*\\) ', ''), ' ', 2)::int from own),
  process (pid, is_server) as (select pid, true from server union all select pid, false from pg_stat_activity)
  select sum(f.f[12]::bigint + f.f[13]::bigint + case when is_server then f.f[14]::bigint + f.f[15]::bigint else 0 end)::int as ticks
  from process, string_to_array(
    regexp_replace(pg_read_file('/proc/' || pid || '/stat', 0, 4000, true), '^.*\\) ', ''), ' ') f (f)
  where f.f is not null`;

/**
 * The CPU time that a PostgreSQL server has used so far, on whatever machine, in microseconds; `null`: it runs on another
 * system than Linux, or the role is no superuser.
 */
export async function serverCpu(client: pg.Client): Promise<number | null> {
  try {
    const { rows: [row] } = await client.query(CPU);
    return row.ticks * TICK_US;
  } catch {
    return null;
  }
}
