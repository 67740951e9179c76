import { escapeLines } from "../values/text.ts";

/** Where an engine writes messages for operators; `console` fits. Each call gets one string. */
export interface Logger {
  /** Writes an informational message. */
  info(text: string): void;
  /** Writes a warning. */
  warn(text: string): void;
  /** Writes an error. */
  error(text: string): void;
}

const LEVELS = ["info", "warn", "error"] as const;

/** Writes warnings and errors to the console. */
const CONSOLE: Logger = {
  info: () => {},
  warn: (text) => console.warn(toReadable(text)),
  error: (text) => console.error(toReadable(text)),
};

/** Control characters could hide or forge lines, and so could a line break: what comes after one is indented. */
function toReadable(text: string): string {
  return escapeLines(text).replaceAll(/\n(?! )/g, "\n  ");
}

const SILENT: Logger = { info: () => {}, warn: () => {}, error: () => {} };
// How many different warnings warnOnce() logs at most.
const MAX_WARNINGS = 1_000;

/**
 * Wraps a logger so that it never throws. `undefined` means the console, `null` means no output.
 *
 * @throws {TypeError} It lacks a function of a logger.
 */
export function toLogger(given: Logger | null | undefined): Logger {
  if (given === undefined) return CONSOLE;
  if (given === null) return SILENT;
  const missing = LEVELS.find((level) => typeof given[level] !== "function");
  if (missing !== undefined) {
    throw new TypeError(`logger must be null or have the functions info, warn and error; it has no ${missing}()`);
  }
  return {
    info: (text) => void write(given, "info", text),
    warn: (text) => void write(given, "warn", text),
    error: (text) => void write(given, "error", text),
  };
}

/** Returns a function that logs each warning once, and 1,000 different ones at most. */
export function warnOnce(logger: Logger): (message: string) => void {
  const given = new Set<string>();
  return (message) => {
    if (given.has(message) || given.size >= MAX_WARNINGS) return;
    given.add(message);
    logger.warn(message);
  };
}

/** Ignores what a logger throws or rejects with. */
async function write(logger: Logger, level: keyof Logger, text: string): Promise<void> {
  try {
    await logger[level](text);
  } catch {
    // There is nowhere left to write to.
  }
}
