import { createHash } from "node:crypto";
import { endJobName } from "../end.ts";
import { NotFoundError } from "../error.ts";
import type { KnownJob } from "../flow.ts";
import type { OnDivergence } from "../hold.ts";
import { type Job, waitSchemaOf } from "../job.ts";
import { jsonSchemaOf, type Schema } from "../schema.ts";

/** A definition of a job in an engine. */
export interface CatalogJob {
  /** The definition. */
  readonly job: Job;
  /** Other names of the job. */
  readonly aliases: readonly string[];
  /** Identifies the code: a held run is tried again by code with another print. */
  readonly print: string;
  /** Identifies the schema of the input; `null`: its library does not describe it, or otherwise each time. */
  readonly schemaPrint: string | null;
}

/** What identifies the code of all jobs of an engine. */
interface CodeOptions {
  /** The code, such as a commit. Left out: the text of each function and the schema of each input identify it. */
  build?: string;
  /** What is done with runs that diverge, of jobs that do not say it. */
  onDivergence?: OnDivergence;
}

/** The jobs of an engine, with all their versions and names. */
export class JobCatalog {
  /** The newest version of each job, by name. */
  readonly newest: ReadonlyMap<string, Job>;
  /** What a worker claims. */
  readonly known: readonly KnownJob[];
  readonly #jobs = new Map<string, CatalogJob>();
  /** The definition that executes the runs of a name and a version. */
  readonly #executing = new Map<string, CatalogJob>();
  /** The newest hidden job of each name that cleans up after another one. */
  readonly #ends = new Map<string, Job>();
  /** The name of the job that has an alias. */
  readonly #names = new Map<string, string>();

  /**
   * @param jobs The newest version of each job.
   * @param options What identifies their code besides their definitions.
   * @throws {TypeError} A name or an alias has two jobs, or a version two definitions.
   */
  constructor(jobs: readonly Job[], options: CodeOptions = {}) {
    this.newest = new Map(jobs.map((job) => [job.name, job]));
    for (const job of jobs) this.#addNames(job);
    for (const job of jobs) {
      const { aliases } = job.changes;
      for (const definition of [job, ...job.previous]) {
        this.#add(definition, aliases, options);
        if (definition.onEnd !== null) this.#addEnd(definition.onEnd.job, aliases, options);
      }
    }
    this.known = [...this.#executing].map(([key, { job, aliases, print }]) => {
      const at = key.lastIndexOf("\t");
      const [name, version] = [key.slice(0, at), Number(key.slice(at + 1))];
      const names = [job.name, ...aliases] as const;
      return { name, names, version, print, concurrency: job.flow.concurrency, rate: job.flow.rate };
    });
  }

  /** The newest definition of a name or an alias, or the one of this very version; `undefined`: there is none. */
  find(job: string | Job): CatalogJob | undefined {
    const name = typeof job === "string" ? job : job.name;
    const end = this.#ends.get(name);
    if (end !== undefined) return this.#jobs.get(keyOf(end.name, end.changes.version));
    const own = this.newest.get(this.#names.get(name) ?? name);
    if (own === undefined) return undefined;
    const version = typeof job === "string" ? own.changes.version : job.changes.version;
    return this.#jobs.get(keyOf(own.name, version));
  }

  /** The definition that executes a run; `undefined`: this engine does not execute it. */
  executing(jobName: string, version: number): CatalogJob | undefined {
    return this.#executing.get(keyOf(jobName, version));
  }

  /** Whether a definition has a schema for waits of a name. */
  haveWait(name: string): boolean {
    return [...this.#jobs.values()].some(({ job }) => waitSchemaOf(job, name) !== undefined);
  }

  #addNames({ name, changes: { aliases } }: Job): void {
    for (const alias of aliases) {
      if (this.newest.has(alias)) {
        throw new TypeError(`Job "${name}" has the alias "${alias}", which is the name of another job`);
      }
      const other = this.#names.get(alias);
      if (other !== undefined) throw new TypeError(`Jobs "${other}" and "${name}" both have the alias "${alias}"`);
      this.#names.set(alias, name);
    }
  }

  /** Adds the hidden job that cleans up after one. The first that is added is that of the newest version. */
  #addEnd(job: Job, aliases: readonly string[], options: CodeOptions): void {
    const names = [job.name, ...aliases.map(endJobName)];
    for (const name of names) {
      if (this.newest.has(name) || this.#names.has(name)) {
        throw new TypeError(`There is a job "${name}": that is the name of what cleans up after another job`);
      }
      if (!this.#ends.has(name)) this.#ends.set(name, job);
    }
    this.#add(job, names.slice(1), options);
  }

  #add(job: Job, aliases: readonly string[], options: CodeOptions): void {
    const { name, changes: { version, continues } } = job;
    const entry = { job, aliases, print: codePrint(job, options), schemaPrint: schemaPrint(job) };
    this.#jobs.set(keyOf(name, version), entry);
    for (const executed of [version, ...continues]) {
      for (const known of [name, ...aliases]) {
        const key = keyOf(known, executed);
        if (this.#executing.has(key)) throw new TypeError(`Two definitions of "${name}" have version ${executed}`);
        this.#executing.set(key, entry);
      }
    }
  }
}

/** The key of a version of a job; a name has no control characters. */
function keyOf(name: string, version: number): string {
  return `${name}\t${version}`;
}

/** Identifies all of a job that decides whether a held run goes on. */
function codePrint(job: Job, { build, onDivergence }: CodeOptions): string {
  const { run, changes } = job;
  const { version, renamed, removed, added, upgradeInput, recheckInput } = changes;
  const code = build ?? [run.toString(), upgradeInput?.toString() ?? "", schemaPrint(job)];
  const names = [[...renamed], [...removed], [...added]];
  return hash(JSON.stringify([code, version, names, changes.onDivergence ?? onDivergence ?? null, recheckInput]));
}

function schemaPrint({ input }: Job): string | null {
  const [text, again] = [describe(input), describe(input)];
  return text === null || text !== again ? null : hash(text);
}

/** What a schema accepts. That there is a default counts, but not which: it may come from the time or be random. */
function describe(input: Schema): string | null {
  const schema = jsonSchemaOf(input);
  try {
    return schema === null ? null : JSON.stringify(withoutValues(schema));
  } catch {
    return null; // a library may return more than JSON
  }
}

// Their members are named by the user: "default" is a property there.
const NAMED_SCHEMAS = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
const DATA = new Set(["const", "enum"]);

/** A JSON Schema without the values of its defaults and its examples. */
function withoutValues(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutValues);
  if (typeof schema !== "object" || schema === null) return schema;
  return mapEntries(schema, (value, key) => {
    if (key === "default" || key === "examples") return true;
    if (DATA.has(key)) return value;
    return NAMED_SCHEMAS.has(key) ? mapEntries(Object(value), withoutValues) : withoutValues(value);
  });
}

function mapEntries(object: object, change: (value: unknown, key: string) => unknown): object {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value, key)]));
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}

const MAX_NAMES = 20;

/**
 * The engine has no job of this name. The message lists its jobs, so it is only for the host: a client must not learn
 * which jobs exist.
 */
export class UnknownJobError extends NotFoundError {
  /** The requested name. */
  readonly jobName: string;

  /** Creates the error for a requested name. */
  constructor(jobName: string, known: Iterable<string>) {
    const names = Array.from(known, (name) => `"${name}"`);
    const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : "";
    const list = names.length === 0 ? "it has no jobs" : `its jobs are ${names.slice(0, MAX_NAMES).join(", ")}${more}`;
    super(`There is no job "${jobName}" in this engine: ${list}`);
    this.name = "NotFoundError";
    this.jobName = jobName;
  }
}
