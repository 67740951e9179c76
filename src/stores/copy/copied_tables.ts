// The one list of what is copied. `tests/stores/copy/copied_tables_test.ts` fails when a table or a column of either store
// is neither here nor in `LEFT_OUT`.

/** A table of `PostgresStore`, and where its rows come from. */
export interface CopiedTable {
  /** The table, without its schema. */
  to: string;
  /** The tables of `SqliteStore`, with aliases. */
  from: string;
  /** Each copied column, with its expression over these tables. */
  columns: Readonly<Record<string, string>>;
}

/** Columns that have the same name in a table of both stores. */
function same(alias: string, names: string): Record<string, string> {
  return Object.fromEntries(names.split(/\s+/).map((name) => [name, `${alias}.${name}`]));
}

/**
 * All tables that are copied. Row numbers stay, and with them the order of runs, their positions and all references.
 */
export const COPIED_TABLES: readonly CopiedTable[] = [
  {
    to: "runs",
    from: `holdfast_runs r
      LEFT JOIN holdfast_holds h ON h.run_seq = r.seq AND h.since IS NOT NULL`,
    columns: {
      ...same(
        "r",
        `seq id job status queue position queue_state labels parked_no on_end end_of idempotency_key former_key concurrency_key timer_at lease_owner lease_claim lease_expires_at
        lease_generation last_report_no recorded has_pauses interruptions abandonments abandonments_alone retrigger_of retriggered_as
        completed_as origin_id ended_by progress output error failure failed_step created_at updated_at started_at completed_at
        leased_at trace fairness_key priority due_at deadline_at key_concurrency key_rate_limit key_rate_period start_at
        start_within start_by finish_within finish_by schedule_name slot_at slot parent_id parent_seq parent_pause depth`,
      ),
      is_held: "h.run_seq IS NOT NULL",
    },
  },
  { to: "inputs", from: "holdfast_inputs i", columns: same("i", "run_seq payload input schema_print") },
  { to: "other_inputs", from: "holdfast_other_inputs o", columns: same("o", "run_seq schema_print input") },
  { to: "labels", from: "holdfast_labels l", columns: same("l", "key value run_seq") },
  {
    to: "steps",
    from: "holdfast_steps t",
    columns: same(
      "t",
      "seq run_seq name position status attempts retry_at recorded_no started_at completed_at output failure",
    ),
  },
  {
    to: "pauses",
    from: "holdfast_pauses p",
    columns: same(
      "p",
      `seq id run_seq kind name metadata status awaited outcome payload signal_id prepared_no recorded_no created_at
      deadline_at suspended_at resolved_at first_resumed_at total added unfinished payload_schema trace receive`,
    ),
  },
  {
    to: "messages",
    from: "holdfast_messages i2",
    columns: same("i2", "seq run_seq no id name payload input trace accepted_at pause_seq"),
  },
  {
    to: "attempts",
    from: "holdfast_attempts ta",
    columns: same("ta", "run_seq step_name attempt started_at ended_at retry_at failure"),
  },
  {
    to: "interruptions",
    from: "holdfast_interruptions ti",
    columns: same("ti", "run_seq generation kind worker leased_at ended_at"),
  },
  { to: "children", from: "holdfast_children m", columns: same("m", "pause_seq no run_seq result payload") },
  { to: "orphans", from: "holdfast_orphans n", columns: same("n", "parent_seq") },
  {
    to: "holds",
    from: "holdfast_holds d",
    columns: same("d", "run_seq queue code message details since generation recorded prints offered_in continues"),
  },
  { to: "copies", from: "holdfast_copies y", columns: same("y", "run_seq copied_up_to unfinished undone") },
  {
    to: "logs",
    from: "holdfast_logs g",
    columns: same("g", "id run_seq no step_name level message data written_at"),
  },
  {
    to: "chunks",
    from: "holdfast_chunks x",
    columns: same("x", "run_seq stream position follows first count size at generation items"),
  },
  { to: "holders", from: "holdfast_holders q", columns: same("q", "concurrency_key run_id generation") },
  {
    to: "ghosts",
    from: "holdfast_ghosts z",
    columns: same("z", "run_id generation lease_claim job concurrency_key expires_at"),
  },
  { to: "starts", from: "holdfast_starts w", columns: same("w", "scope no at period") },
  {
    to: "openings",
    from: "holdfast_openings e",
    columns: same("e", "concurrency_key queue opens_at period is_open"),
  },
  {
    to: "heads",
    from: "holdfast_heads b",
    columns: same("b", "queue fairness_key turn position run_seq"),
  },
  { to: "fairness_keys", from: "holdfast_fairness_keys k", columns: same("k", "fairness_key next_turn") },
  { to: "serving", from: "holdfast_serving v", columns: same("v", "turn keyless") },
  { to: "paused_jobs", from: "holdfast_paused_jobs j", columns: same("j", "job paused_at paused_by note") },
  {
    to: "schedules",
    from: "holdfast_schedules u",
    columns: same(
      "u",
      `name job options declared paused_at paused_by next_at last_slot_at last_run_id skipped error version open_from`,
    ),
  },
  { to: "deleted", from: "holdfast_deleted a", columns: same("a", "id deleted_at") },
];

/** What is not copied: tables, or columns of tables that are, each with the reason. */
export const LEFT_OUT: {
  readonly sqlite: Readonly<Record<string, string>>;
  readonly postgres: typeof LEFT_OUT.sqlite;
} = {
  sqlite: {
    "holdfast_counts": "counted anew",
    "holdfast_journal": "positions are other ones: event streams continue after a gap",
    "holdfast_workers": "none is live, and each adds itself when it claims",
    "holdfast_stats": "statistics begin anew",
    "holdfast_schema": "the version of the tables; its id is copied in the end",
    "holdfast_steps.fact_in_row": "part of the journal",
    "holdfast_serving.id": "always 1",
  },
  postgres: {
    "counts": "counted anew",
    "journal": "begins anew",
    "journal_start": "begins anew",
    "workers": "none is live, and each adds itself when it claims",
    "stats": "statistics begin anew",
    "schema_version": "the version of the tables",
    "server": "which start of the server the last claim has seen",
  },
};
