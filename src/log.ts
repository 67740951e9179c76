import { type Json, type JsonText, parseValue, type Stored } from "./json.ts";

/** How much a line matters. */
export type LogLevel = "info" | "warn" | "error";

/** A line that a job wrote. */
export interface LogEntry {
  /** A UUIDv7. */
  id: string;
  /** The run that wrote it. */
  runId: string;
  /** The step that wrote it; `null` outside of steps. */
  stepName: string | null;
  /** How much it matters. */
  level: LogLevel;
  /** What it says. */
  message: string;
  /** What it adds for programs. */
  data: Json;
  /** When it was written: ISO 8601 in UTC. */
  timestamp: string;
}

/** A line whose data is still JSON text. */
export type LogText = Stored<LogEntry, "data">;

/** A line with its data. */
export function parseLog(line: LogText): LogEntry {
  return { ...line, data: parseValue(line.data) };
}

/** A line to keep. */
export interface NewLogEntry extends Omit<LogEntry, "data" | "timestamp"> {
  /** What it adds for programs. */
  data: JsonText | null;
  /** When it was written: an instant of the worker's clock. */
  writtenAt: number;
}
