import { describeDuration } from "../../values/duration.ts";
import type { Latency } from "../../statistics/latencies.ts";
import type { Cell, Color } from "./table.ts";

const STATUSES: { readonly [status: string]: readonly [shape: string, color: Color | null] } = {
  pending: ["◌", "grey"],
  leased: ["▶", "blue"],
  running: ["▶", "blue"],
  waiting: ["‖", "yellow"],
  completed: ["✓", "green"],
  failed: ["✕", "red"],
  cancelled: ["⊘", "grey"],
  live: ["●", "green"],
  stopping: ["◐", "yellow"],
  lost: ["✕", "red"],
};

/** A status as a shape and a word. */
export function statusCell(status: string): { text: string; color: Color | null } {
  const [shape, color] = STATUSES[status] ?? ["·", null];
  return { text: `${shape} ${status}`, color };
}

/** How long ago an instant was, or in how long it is. */
export function describeInstant(instant: string | null | undefined, now: number): string {
  if (instant === null || instant === undefined) return "";
  const ms = now - Date.parse(instant);
  return ms >= 0 ? `${describeDuration(ms)} ago` : `in ${describeDuration(-ms)}`;
}

/** An instant with its distance from now; `null` stays. */
export function describeBoth(instant: string | null | undefined, now: number): string | null {
  return instant === null || instant === undefined ? null : `${instant} (${describeInstant(instant, now)})`;
}

/** How long something took, or takes since its begin; empty before its begin. */
export function describeSpan(from: string | null | undefined, to: string | null | undefined, now: number): string {
  if (from === null || from === undefined) return "";
  return describeDuration((to === null || to === undefined ? now : Date.parse(to)) - Date.parse(from));
}

/** The median and the 95th percentile. */
export function describeLatency(latency: Latency | null): string {
  return latency === null ? "" : `${describeDuration(latency.p50)} / ${describeDuration(latency.p95)}`;
}

/** A share as a percentage. */
export function describeShare(share: number | null): Cell {
  return share === null ? "" : `${Math.round(share * 1_000) / 10} %`;
}

/** Labels as `key=value`. */
export function describeLabels(labels: { readonly [key: string]: string }): string {
  return Object.entries(labels).map(([key, value]) => `${key}=${value}`).join(" ");
}

/** A number with its noun: `1 run`, `3 runs`. */
export function countOf(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
