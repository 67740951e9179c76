import { type Json, type JsonText, parseValue } from "../values/json.ts";
import { byteLength, tidyText } from "../values/text.ts";

/** The level of a log line. */
export type LogLevel = "info" | "warn" | "error";

/** A log line of a job. */
export interface LogEntry {
  /** A UUIDv7. */
  id: string;
  /** The run that wrote it. */
  runId: string;
  /** The step that wrote it; `null` outside of steps. */
  stepName: string | null;
  /** Its level. */
  level: LogLevel;
  /** Its message. */
  message: string;
  /** Structured data of the line. */
  data: Json;
  /** When it was written: ISO 8601 in UTC. */
  timestamp: string;
}

/** A line with its data as stored JSON. */
export type LogText = Omit<LogEntry, "data"> & { data: JsonText | null };

/** Parses the data of a stored line. */
export function parseLog(line: LogText): LogEntry {
  return { ...line, data: parseValue(line.data) };
}

/** A line to store. */
export interface NewLogEntry extends Omit<LogEntry, "data" | "timestamp"> {
  /** Structured data of the line. */
  data: JsonText | null;
  /** When it was written, by the worker's clock. */
  writtenAt: number;
}

/** The maximum number of stored lines of a run. */
export const MAX_LOG_LINES = 10_000;
const MAX_LINE_BYTES = 8_192;

/**
 * Cuts a line whose message and data take more than 8 KiB of JSON, and marks it as cut. Data that takes more than
 * half of that is replaced by its size; the message gets the rest.
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

/** The longest prefix of a message that fits, marked as cut. */
function cutMessage(message: string, maxBytes: number): string {
  let [shortest, longest] = [0, Math.min(message.length, maxBytes)];
  while (shortest < longest) {
    const length = Math.ceil((shortest + longest) / 2);
    if (byteLength(JSON.stringify(tidyText(message, length))) <= maxBytes) shortest = length;
    else longest = length - 1;
  }
  return tidyText(message, shortest);
}

/** The line before the stored ones. It has the position, the id and the time of the last dropped line. */
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
