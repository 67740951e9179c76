/** What happens in a phase, beside the jobs. */
export type PhaseType =
  | "warmup"
  | "clean"
  | "high-load"
  | "idle-in-tx"
  | "active-readers"
  | "kill-worker"
  | "start-worker"
  | "repeated-kill"
  | "postgres-restart"
  | "pg-backend-kill"
  | "pool-exhaustion";

/** A part of a cell. */
export interface Phase {
  /** Its name in the cell. */
  label: string;
  /** What happens. */
  type: PhaseType;
  /** How long it takes when the first clean phase takes a minute. */
  seconds: number;
}

/** What is run with one queue on a new server. */
export interface Cell {
  /** What it shows: that it recovers, that its tables bear it, or how fast it is. */
  kind: "chaos" | "bloat" | "peak";
  /** How many jobs each process adds a second; of `peak`, what the adapter is told. */
  rate: number;
  /** How many processes add and execute jobs. */
  processes: number;
  /** How many workers each of them has. */
  workers: number;
  /** How many jobs wait, if they are added to that depth and not at a rate. */
  depth?: number;
  /** Its phases, in their order. */
  phases: readonly Phase[];
}

/** How long the first clean phase takes in what was published, in seconds. */
export const PUBLISHED_SECONDS = 60;

const warmup: Phase = { label: "warmup", type: "warmup", seconds: 30 };
const baseline: Phase = { label: "baseline", type: "clean", seconds: 60 };
const recovery: Phase = { label: "recovery", type: "clean", seconds: 60 };

function chaos(options: Pick<Cell, "rate" | "processes">, ...stress: Phase[]): Cell {
  return { kind: "chaos", ...options, workers: 32, phases: [warmup, baseline, ...stress, recovery] };
}

function bloat(options: Pick<Cell, "rate" | "workers">, stress: Phase, recoverySeconds: number): Cell {
  const phases = [
    warmup,
    { ...baseline, label: "clean_1" },
    stress,
    { ...recovery, label: "recovery_1", seconds: recoverySeconds },
  ];
  return { kind: "bloat", ...options, processes: 1, phases };
}

function peak(workers: number): Cell {
  const clean: Phase = { label: "clean", type: "clean", seconds: 180 };
  return { kind: "peak", rate: 50_000, processes: 1, workers, depth: 4_000, phases: [warmup, clean] };
}

/** The cells, by their names in the benchmark. */
export const CELLS: { readonly [name: string]: Cell } = {
  chaos_postgres_restart: chaos(
    { rate: 600, processes: 1 },
    { label: "restart", type: "postgres-restart", seconds: 60 },
  ),
  chaos_pg_backend_kill: chaos({ rate: 600, processes: 1 }, { label: "kills", type: "pg-backend-kill", seconds: 60 }),
  chaos_pool_exhaustion: chaos(
    { rate: 600, processes: 1 },
    { label: "exhaustion", type: "pool-exhaustion", seconds: 60 },
  ),
  chaos_crash_recovery: chaos(
    { rate: 300, processes: 2 },
    { label: "kill", type: "kill-worker", seconds: 60 },
    { label: "restart", type: "start-worker", seconds: 60 },
  ),
  chaos_repeated_kills: chaos(
    { rate: 300, processes: 2 },
    { label: "repeated", type: "repeated-kill", seconds: 120 },
  ),
  idle_in_tx: bloat({ rate: 800, workers: 32 }, { label: "idle_1", type: "idle-in-tx", seconds: 240 }, 180),
  sustained_high_load: bloat({ rate: 800, workers: 32 }, { label: "pressure_1", type: "high-load", seconds: 240 }, 120),
  active_readers: bloat({ rate: 800, workers: 32 }, { label: "readers_1", type: "active-readers", seconds: 240 }, 120),
  event_burst: bloat({ rate: 1_200, workers: 64 }, { label: "pressure_1", type: "high-load", seconds: 300 }, 240),
  perf_w4: peak(4),
  perf_w16: peak(16),
  perf_w64: peak(64),
  perf_w128: peak(128),
  perf_w256: peak(256),
};

/**
 * The settings of the server that the benchmark gives to all queues (`postgres.conf`), as far as they are not the defaults
 * of the server.
 */
export const SERVER_SETTINGS = [
  "max_connections=400",
  "shared_buffers=256MB",
  "work_mem=8MB",
  "maintenance_work_mem=128MB",
  "autovacuum_vacuum_cost_limit=200",
  "log_min_duration_statement=5000",
  "log_autovacuum_min_duration=0",
] as const;
