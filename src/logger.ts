/** Where an engine writes what people should know: `console` fits. Each call gets one text. */
export interface Logger {
  /** Writes what is of interest. */
  info(text: string): void;
  /** Writes what may become a problem. */
  warn(text: string): void;
  /** Writes what has failed. */
  error(text: string): void;
}

const LEVELS = ["info", "warn", "error"] as const;

/** Warnings and errors on the console. */
const CONSOLE: Logger = {
  info: () => {},
  warn: (text) => console.warn(text),
  error: (text) => console.error(text),
};

const SILENT: Logger = { info: () => {}, warn: () => {}, error: () => {} };

/**
 * Wraps a logger so that it never throws. `undefined` means the console, `null` means none.
 *
 * @throws {TypeError} It has not the functions that a logger has.
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

/** What a logger throws, at once or later, harms nothing. */
async function write(logger: Logger, level: keyof Logger, text: string): Promise<void> {
  try {
    await logger[level](text);
  } catch {
    // There is nowhere left to write to.
  }
}
