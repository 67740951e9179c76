// A row of `stats` has what was counted in one slot of time, of `span` milliseconds, for one job, or for all together
// (''). `latencies` is `LatencyCounts`. The columns after it are sums of samples, in the rows of all jobs together.

/** The tables for operators, part of the first version of the tables. */
export const OPERATE_TABLES = `
create table {schema}.stats (
  span int not null,
  job text collate "C" not null,
  at bigint not null,
  triggered bigint not null,
  started bigint not null,
  completed bigint not null,
  failed bigint not null,
  cancelled bigint not null,
  steps bigint not null,
  step_failures bigint not null,
  latencies jsonb not null,
  samples bigint not null,
  pending bigint not null,
  running bigint not null,
  waiting bigint not null,
  busy bigint not null,
  primary key (span, job, at)
) with (fillfactor = 70);
create index stats_by_time on {schema}.stats (span, at, job);
`;
