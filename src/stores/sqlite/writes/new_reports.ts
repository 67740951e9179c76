import { toFact } from "../../../model/fact.ts";
import type { JsonText } from "../../../values/json.ts";
import type { Lease } from "../../../model/lease.ts";
import { latestProgress, type Report } from "../../../model/execution_report.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { sql, type SqlPart } from "../statement.ts";
import { underLease } from "./lease_cache.ts";

/** The reports ({@linkcode Report}) in a write that no earlier write under the same lease has stored. */
export interface NewReports {
  /** The reports, in order. */
  reports: readonly Report[];
  /** The latest progress among them. */
  progress: JsonText | null;
  /** The number of the last one; 0: there is none. */
  lastNo: number;
}

/** The part of a SET clause that stores the latest progress and the number of the last report. */
export function keepReports({ progress, lastNo }: Omit<NewReports, "reports">): SqlPart {
  return sql`progress = coalesce(${progress}, progress), last_report_no = max(last_report_no, ${lastNo})`;
}

/** No new reports. */
export const NO_REPORTS: NewReports = { reports: [], progress: null, lastNo: 0 };

/** The reports after the number `knownNo`. They are in the order of their numbers. */
export function newReports(reports: readonly Report[], knownNo: number): NewReports {
  const [first] = reports;
  const lastNo = reports.at(-1)?.no ?? 0;
  if (first === undefined || lastNo <= knownNo) return NO_REPORTS;
  const added = first.no > knownNo ? reports : reports.filter(({ no }) => no > knownNo);
  const progress = latestProgress(added);
  return { reports: added, progress: progress === null ? null : JSON.stringify(progress), lastNo };
}

/** The reports that no earlier write under the lease has stored; none if the lease is lost. */
export function findNewReports(
  db: SqliteDatabase,
  lease: Lease,
  reports: readonly Report[],
): NewReports {
  if (reports.length === 0) return NO_REPORTS;
  const run = db.get<{ last_report_no: number }>`SELECT last_report_no FROM holdfast_runs WHERE ${underLease(lease)}`;
  return run === undefined ? NO_REPORTS : newReports(reports, run.last_report_no);
}

/** Notes the facts of new reports, after the write that stored them. */
export function noteReports(db: SqliteDatabase, lease: Lease, runSeq: number, { reports, lastNo }: NewReports): void {
  if (reports.length === 0) return;
  db.facts.note(...reports.map((report) => toFact(runSeq, report)));
  const leased = db.leased.find(lease);
  if (leased !== undefined) leased.lastReportNo = lastNo;
}
