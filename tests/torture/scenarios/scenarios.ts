import type { Scenario } from "../scenario.ts";
import { bank } from "./bank.ts";
import { damagedFile } from "./damaged_file.ts";
import { diskErrors } from "./disk_errors.ts";
import { foreignLock } from "./foreign_lock.ts";
import { fullDisk } from "./full_disk.ts";
import { killedOpening } from "./killed_opening.ts";
import { messages } from "./messages.ts";
import { movedClock } from "./moved_clock.ts";
import { openingTogether } from "./opening_together.ts";
import { readOnlyFile } from "./read_only_file.ts";
import { replacedFile } from "./replaced_file.ts";
import { streams } from "./streams.ts";

/** Scenarios of a disk or a file that is full, read-only, replaced, damaged or broken. */
export const FILE_SCENARIOS: readonly Scenario[] = [fullDisk, readOnlyFile, replacedFile, damagedFile, diskErrors];

/** Scenarios of other processes and of the clock. */
export const PROCESS_SCENARIOS: readonly Scenario[] = [
  foreignLock,
  openingTogether,
  killedOpening,
  movedClock,
  bank,
  streams,
  messages,
];

/** All scenarios, in the order in which they are run. */
export const SCENARIOS: readonly Scenario[] = [...FILE_SCENARIOS, ...PROCESS_SCENARIOS];
