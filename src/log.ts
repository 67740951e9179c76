import { type Json, type JsonText, parseValue } from "./json.ts";
import { tidyText } from "./text.ts";

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

/** A line whose data is as it is stored. */
export type LogText = Omit<LogEntry, "data"> & { data: JsonText | null };

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

/** How many lines a run keeps. */
export const MAX_LOG_LINES = 10_000;
const MAX_LINE_BYTES = 8_192;

/**
 * Cuts a line whose message and data take more than 8 KiB of JSON, so that it says so: of the data its size is left if it
 * has more than half of that, and the message has the rest.
 */
export function fitLine<Line extends Pick<NewLogEntry, "message" | "data">>(line: Line): Line {
  const { message, data } = line;
  // No character takes more than 6 bytes in a string of JSON, or 3 without escapes.
  if ((message.length * 2 + (data?.length ?? 0)) * 3 < MAX_LINE_BYTES) return line;
  const dataBytes = byteLength(data ?? "");
  if (byteLength(JSON.stringify(message)) + dataBytes <= MAX_LINE_BYTES) return line;
  const kept = dataBytes > MAX_LINE_BYTES / 2 ? JSON.stringify({ cut: true, bytes: dataBytes }) : data;
  return { ...line, message: cutMessage(message, MAX_LINE_BYTES - byteLength(kept ?? "")), data: kept };
}

/** The longest beginning of a message that fits, with a note that it was cut. */
function cutMessage(message: string, maxBytes: number): string {
  let [shortest, longest] = [0, Math.min(message.length, maxBytes)];
  while (shortest < longest) {
    const length = Math.ceil((shortest + longest) / 2);
    if (byteLength(JSON.stringify(tidyText(message, length))) <= maxBytes) shortest = length;
    else longest = length - 1;
  }
  return tidyText(message, shortest);
}

/** How many bytes a string takes in UTF-8. */
export function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** The line in front of those that are kept. It has the place, the id and the time of the last one that was dropped. */
export function droppedLines({ id, runId, timestamp }: LogText, count: number): LogText {
  return {
    id,
    runId,
    stepName: null,
    level: "warn",
    message: `Older lines were dropped: ${count} (a run keeps its newest ${MAX_LOG_LINES})`,
    data: JSON.stringify({ dropped: count }),
    timestamp,
  };
}
