import type { Health } from "../../engine/operate/health.ts";
import { PACKAGE_VERSION } from "../../model/version.ts";
import { StoreError } from "../../model/error.ts";
import type { TableCheck } from "../../stores/table_check.ts";
import { type Command, UsageError } from "../command.ts";
import { countOf } from "../output.ts";
import { askApi } from "../service/api.ts";
import type { Database, Service } from "../service/service.ts";

/** Something that is wrong. */
interface Finding {
  /** `damage`: the tables say something that is never true. `stuck`: somebody has to do something. */
  kind: "damage" | "stuck";
  /** What has to be true. */
  check: string;
  /** What is wrong. */
  message: string;
}

// So many findings of one check are shown.
const MAX_FINDINGS = 20;
const DUE_TOO_LONG_MS = 60_000;
// What holds up a run on purpose.
const ON_PURPOSE = ["job_paused", "limit", "key", "held", "alone", "delayed"];

/** Checks a database. */
export const doctor: Command = {
  name: "doctor",
  usage: "[--repair]",
  about: "check the tables of a database, and look for runs that are stuck",
  options: { repair: { value: null, about: "count the runs of each job and status again; nothing else is changed" } },
  async run({ args, service, output }) {
    const { database } = service;
    if (database === null) {
      throw new UsageError("The doctor reads the tables: give the file or the database as --store, not a service");
    }
    if (args.has("repair")) {
      await database.recount();
      output.note("The runs were counted again");
    }
    const broken = await database.findBrokenValues(MAX_FINDINGS);
    const damages: Finding[] = [
      ...broken.map((message) => ({ kind: "damage" as const, check: "values are JSON", message })),
      ...await findAll(database, database.checks, "damage"),
    ];
    const stuck = damages.length > 0 ? [] : [
      ...await findAll(database, database.stuckChecks, "stuck"),
      ...await findDueRuns(service),
      ...await findHeldRuns(service),
      ...await findLargeLog(service),
    ];
    if (damages.length > 0) output.note("What is stuck was not looked for: the tables are damaged");
    const findings = [...damages, ...stuck];
    output.list(findings, {
      columns: [
        ["FOUND", ({ kind }) => ({ text: kind, color: kind === "damage" ? "red" : "yellow" })],
        ["WHAT", ({ message }) => message],
      ],
      none: `Nothing is wrong: ${countOf(database.checks.length + database.stuckChecks.length + 4, "check")}`,
    });
    return findings.length === 0 ? 0 : 1;
  },
};

async function findAll(database: Database, checks: readonly TableCheck[], kind: Finding["kind"]): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const { name, sql, ifAny } of checks) {
    if (ifAny !== undefined && (await database.select(ifAny, 1)).length === 0) continue;
    const messages = await database.select(sql, MAX_FINDINGS).catch((error: unknown) => {
      if (error instanceof StoreError && error.code === "internal") return [error.message]; // it finds damage, too
      throw error;
    });
    findings.push(...messages.map((message) => ({ kind, check: name, message })));
  }
  return findings;
}

/** Runs that have been due for over a minute, of which nothing holds them up on purpose. */
async function findDueRuns(service: Service): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const { jobName, oldestDue, paused } of await askApi(service, "GET /jobs")) {
    if (oldestDue === null || oldestDue.runId === null || paused !== null) continue; // `null`: it may not be read
    const { runId, dueSince } = oldestDue;
    const explanation = await askApi(service, "GET /explain", { query: { runId } });
    const dueMs = Date.parse(explanation.at) - Date.parse(dueSince);
    if (dueMs < DUE_TOO_LONG_MS || explanation.reasons.some(({ kind }) => ON_PURPOSE.includes(kind))) continue;
    const message = `Run ${runId} of ${jobName} is due since ${dueSince}: ${explanation.message}`;
    findings.push({ kind: "stuck", check: "runs that are due are claimed within a minute", message });
  }
  return findings;
}

/** Runs that wait for code that fits them. */
async function findHeldRuns(service: Service): Promise<Finding[]> {
  const { groups } = await askApi(service, "GET /held"); // of the newest 200
  return groups.map(({ jobName, count, since, message, runIds }) => {
    const held = count === 1
      ? `Run ${runIds[0]} of ${jobName} is held`
      : `${countOf(count, "run")} of ${jobName} are held`;
    return { kind: "stuck", check: "no run is held", message: `${held} since ${since}: ${message}` };
  });
}

/** What the health of the store says about its write-ahead log. */
async function findLargeLog(service: Service): Promise<Finding[]> {
  const response = await service.ask("/health", {}); // its status says more about this process than about the store
  const { checks } = await response.json() as Health;
  return checks.filter(({ name, status }) => name === LOG_CHECK && status !== "ok")
    .map(({ message }) => ({ kind: "stuck", check: "the write-ahead log is small", message }));
}

const LOG_CHECK = "wal";

/** Makes or updates the tables. */
export const migrate: Command = {
  name: "migrate",
  usage: "",
  about: "make the tables of a database, or update them to this version, as their owner",
  migrates: true,
  // deno-lint-ignore require-await -- opening the service has done it
  async run({ output }) {
    const version = PACKAGE_VERSION;
    output.object({ version }, () => output.line(`The database has the tables of Holdfast ${version}`));
  },
};

/** Copies a SQLite file. */
export const backup: Command = {
  name: "backup",
  usage: "FILE",
  about: "copy a SQLite database, which may be in use, to a new file",
  async run({ args, service, output }) {
    const copy = service.database?.backup ?? null;
    if (copy === null) {
      const advice = service.kind === "postgres" ? "use pg_dump" : "use the file itself as --store, on its machine";
      throw new UsageError(`Only a SQLite file can be copied: ${advice}`);
    }
    const file = args.positionals[0]!;
    try {
      await copy(file);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      output.note(error.message); // the store can be reached: it is the copy that cannot be written
      return 1;
    }
    output.object({ file }, () => output.line(`Copied to ${file}`));
    return 0;
  },
};
