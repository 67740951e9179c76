// `trace` of a run is that of its trigger, and of a wait that of its signal: see `TraceText`. NULL without a plugin that
// traces.

/** The columns for traces, the seventh version of the tables. */
export const TRACING_TABLES = `
ALTER TABLE holdfast_runs ADD COLUMN trace TEXT;
ALTER TABLE holdfast_pauses ADD COLUMN trace TEXT;
`;
