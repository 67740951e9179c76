import type { Chance } from "../support/chance.ts";

/** How the end of a log is damaged: as a disk may leave what was written last when the power goes. */
export const DAMAGES = ["cut off", "zeroed", "a bit flipped", "a hole"] as const;

/** A way to damage the end of a log. */
export type Damage = typeof DAMAGES[number];

/** A part of a log, in bytes. */
export interface WalTail {
  from: number;
  until: number;
}

const HOLE_BYTES = 4_096;
const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;

/**
 * Finds the part of a write-ahead log whose pages are nowhere else: from the first frame that no checkpoint has taken
 * up, to the last one that is committed. What comes before is in the database already, so that losing it from the log
 * alone would be no power loss: SQLite has synced the log before it began to copy.
 *
 * Read from the index (`-shm`), as https://www.sqlite.org/walformat.html describes it, in the byte order of the machine.
 */
export function findWalTail(shm: Uint8Array, walBytes: number): WalTail {
  const view = new DataView(shm.buffer, shm.byteOffset, shm.byteLength);
  const read = (at: number) => at + 4 <= shm.byteLength ? view.getUint32(at, isLittleEndian()) : 0;
  const pageBytes = shm.byteLength < 16 ? 4_096 : view.getUint16(14, isLittleEndian());
  const frameBytes = FRAME_HEADER_BYTES + pageBytes;
  const at = (frame: number) => Math.min(walBytes, HEADER_BYTES + frame * frameBytes);
  const lastFrame = read(16);
  const copiedFrames = Math.max(read(96), read(128)); // copied by checkpoints, or about to be
  return { from: Math.min(at(copiedFrames), at(lastFrame)), until: at(lastFrame) };
}

function isLittleEndian(): boolean {
  return new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
}

/** A log that is damaged somewhere in its tail. */
export function damageWal(wal: Uint8Array, { from, until }: WalTail, damage: Damage, chance: Chance): Uint8Array {
  const at = from + chance.int(Math.max(1, until - from));
  if (damage === "cut off") return wal.slice(0, at);
  const damaged = wal.slice();
  if (damage === "zeroed") damaged.fill(0, at);
  else if (damage === "a hole") damaged.fill(0, at, at + HOLE_BYTES);
  else if (at < damaged.length) damaged[at]! ^= 1 << chance.int(8);
  return damaged;
}
